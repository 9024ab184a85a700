//! Why a group can't be founded, or why a founder can't look after its group.

use crate::join::JoinError;
use crate::spares::SparesError;
use crate::steered::SteerError;
use std::{fmt, io};

/// Why a group can't be founded.
#[derive(Debug)]
pub enum FoundError {
    /// A member could not join the group either.
    Join(JoinError),
    /// There are no pages here, by which newcomers would find the founder.
    NoPages,
    /// A system call failed.
    System {
        /// The call, or the object that it was for.
        call: &'static str,
        /// The call's error.
        error: io::Error,
    },
}

impl FoundError {
    pub(super) fn of(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { call, error }
    }
}

impl From<JoinError> for FoundError {
    fn from(error: JoinError) -> Self {
        Self::Join(error)
    }
}

impl fmt::Display for FoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(error) => error.fmt(f),
            Self::NoPages => f.write_str(
                "members would not find the group: there is no directory for member pages",
            ),
            Self::System { call, error } => write!(f, "{call}: {error}"),
        }
    }
}

impl std::error::Error for FoundError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Join(error) => Some(error),
            Self::System { error, .. } => Some(error),
            Self::NoPages => None,
        }
    }
}

/// Why a founder can't look after its group. It may try again.
#[derive(Debug)]
pub enum AttendError {
    /// Newcomers can't be answered.
    Answer(io::Error),
    /// The rings that newcomers ask for can't be made.
    Spares(SparesError),
    /// The group's lock can't be taken.
    Lock(SteerError),
    /// The group's slots can't be changed.
    Change(io::Error),
    /// The device can't be changed: it still serves groups that are gone, or the host does not get
    /// its packets.
    Device(io::Error),
}

impl fmt::Display for AttendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(error) => write!(f, "newcomers can't be answered: {error}"),
            Self::Spares(error) => write!(f, "rings for newcomers: {error}"),
            Self::Lock(error) => write!(f, "the group's lock: {error}"),
            Self::Change(error) => write!(f, "members that are gone can't be settled: {error}"),
            Self::Device(error) => write!(f, "the device of the group: {error}"),
        }
    }
}

impl std::error::Error for AttendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Answer(error) | Self::Change(error) | Self::Device(error) => Some(error),
            Self::Lock(error) => Some(error),
            Self::Spares(error) => Some(error),
        }
    }
}
