//! The measure of most rows: frames of one length, and for each column other receivers.

use std::num::NonZeroU64;

use anyhow::{Result, bail};
use serde::Deserialize;

use super::unread;
use crate::bench::Bench;
use crate::column::{Column, Receivers};
use crate::figure::Sample;
use crate::generator::{Load, Way};
use crate::libraries::Side;
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::trial::{Done, Trial};

/// The settings of the runs, for all columns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(super) struct Trials {
    /// Frame length.
    len: usize,
    /// Frames per second; `None` for as many as the generator can send.
    pps: Option<NonZeroU64>,
    /// How the frames are sent, if not in the bench's usual way.
    way: Option<Way>,
    /// The length of a run as a multiple of other runs' length. Measures with many columns have
    /// shorter runs. Paced runs are longer, so that the packets in the rings at the end are a small
    /// part.
    #[serde(default = "whole")]
    lengths: f64,
    #[serde(default)]
    settings: Settings,
    #[serde(default)]
    work: Work,
}

fn whole() -> f64 {
    1.0
}

impl Trials {
    /// Why this machine can't send the frames; `None` if it can.
    pub(super) fn absent(&self, bench: &Bench) -> Option<String> {
        match self.way {
            Some(Way::LiveFrames) => unread::no_live_frames(bench),
            _ => None,
        }
    }

    /// Runs a column. The captured share is a figure of paced runs, and of measures that show it.
    pub(super) fn run(
        &self,
        bench: &Bench,
        column: &Column,
        shows_share: bool,
    ) -> Result<Result<Sample, Refusal>> {
        let time = bench.time.mul_f64(self.lengths);
        match column.receivers {
            Receivers::Readers => {}
            Receivers::Program(verdict) => return unread::flood(bench, Some(verdict), time),
            Receivers::Nothing => return unread::flood(bench, None, time),
            Receivers::Links(_) => bail!("a column with links can't be measured on one wire"),
        }
        let trial = Trial {
            side: column.side.unwrap_or(Side::of(column.key)),
            settings: self.settings,
            work: column.work.unwrap_or(self.work),
            seats: if column.seats.is_empty() {
                &[Seat::ALONE]
            } else {
                &column.seats
            },
            load: Load::Frames {
                len: self.len,
                pps: self.pps,
                way: self.way.unwrap_or(bench.way),
                time,
            },
        };
        let sample = if self.pps.is_some() || shows_share {
            Done::sample_with_share
        } else {
            Done::sample
        };
        Ok(trial.run(bench)?.map(|done| sample(&done)))
    }
}
