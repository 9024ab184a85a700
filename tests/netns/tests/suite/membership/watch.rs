//! Finds the owner of each flow by the records of a group's members, where the group's table can't
//! be seen.

use std::mem;
use std::path::PathBuf;

use anyhow::Result;

use super::load::FLOWS;
use super::recorder::Recorder;
use super::records::{self, now_us};

/// The members of a group, and a window of time in which the test looks for the owners.
pub(super) struct Watch {
    /// The file of each member, and the number of its records that have been looked at.
    files: Vec<(PathBuf, u64)>,
    window: Window,
    /// The owners in the window before.
    before: Option<Vec<usize>>,
}

struct Window {
    /// The beginning, in microseconds since 1970.
    since_us: u64,
    owners: Vec<Option<usize>>,
    /// Whether a flow had two owners.
    is_split: bool,
}

impl Window {
    fn now() -> Self {
        Self {
            since_us: now_us(),
            owners: vec![None; FLOWS as usize],
            is_split: false,
        }
    }

    fn note(&mut self, member: usize, number: u32) {
        let owner = &mut self.owners[(number % FLOWS) as usize];
        self.is_split |= owner.is_some_and(|it| it != member);
        *owner = Some(member);
    }
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            files: Vec::new(),
            window: Window::now(),
            before: None,
        }
    }

    /// Adds the group's next member.
    pub(super) fn add(&mut self, member: &Recorder) {
        self.files.push((member.file.clone(), 0));
    }

    /// Forgets what was seen so far.
    pub(super) fn begin(&mut self) {
        self.window = Window::now();
        self.before = None;
    }

    /// The owner of each flow, if each member that `is_there` has its share: [`Watch::owners`]
    /// finds the owners, and the shares are even.
    pub(super) fn settled(&mut self, is_there: &[bool]) -> Result<Option<Vec<usize>>> {
        let owners = self.owners()?;
        Ok(owners.filter(|owners| is_even(owners, is_there)))
    }

    /// The owner of each flow, if each flow had one owner in two windows, the same in both.
    pub(super) fn owners(&mut self) -> Result<Option<Vec<usize>>> {
        self.read()?;
        let window = &self.window;
        if !window.is_split && window.owners.contains(&None) {
            return Ok(None);
        }
        let window = mem::replace(&mut self.window, Window::now());
        if window.is_split {
            self.before = None;
            return Ok(None);
        }
        let owners: Vec<usize> = window.owners.into_iter().flatten().collect();
        let before = self.before.replace(owners.clone());
        Ok((before.as_ref() == Some(&owners)).then_some(owners))
    }

    /// What the present window shows, for messages.
    pub(super) fn seen(&self) -> String {
        let owners = &self.window.owners;
        let of = |owner: Option<usize>| owners.iter().filter(|it| **it == owner).count();
        let all: Vec<usize> = (0..self.files.len()).map(|it| of(Some(it))).collect();
        format!("flows {all:?}, {} without a packet", of(None))
    }

    /// Adds the new records to the window.
    fn read(&mut self) -> Result<()> {
        for (member, (file, from)) in self.files.iter_mut().enumerate() {
            let new = records::read_from(file, *from)?;
            *from += new.len() as u64;
            let since_us = self.window.since_us;
            let new = new.iter().filter(|got| got.arrived_us >= since_us);
            new.for_each(|got| self.window.note(member, got.number));
        }
        Ok(())
    }
}

/// Whether each member that is there has its share of the flows, and no other member has any.
/// Members have equal parts of the buckets. Flows are spread over buckets by chance, so the range
/// is five standard deviations. If a member has the share of another one too, or no share, its
/// number is outside of this range.
fn is_even(owners: &[usize], is_there: &[bool]) -> bool {
    let part = 1.0 / is_there.iter().filter(|it| **it).count() as f64;
    let flows = f64::from(FLOWS);
    let range = 5.0 * (flows * part * (1.0 - part)).sqrt();
    let is_even = |(member, is_there): (usize, &bool)| {
        let has = owners.iter().filter(|owner| **owner == member).count() as f64;
        match is_there {
            true => (has - flows * part).abs() <= range,
            false => has == 0.0,
        }
    };
    is_there.iter().enumerate().all(is_even)
}
