//! Loads a group's BPF programs: of each, the first variant that the verifier accepts.

use crate::capture::{Capture, Side, Variant};
use crate::layout::SENT_FILTERS_MAP;
use fanpcap_bpf::Object;
use fanpcap_engine::Refusal;
use fanpcap_linux::bpf::{LoadError, Loaded, LoadedProgram};
use fanpcap_ring::pool::PoolShape;
use fanpcap_steer::ebpf::EbpfError;
use std::os::fd::BorrowedFd;

/// Compiles a group's steering program together with a capture.
pub type Compile<'a> = &'a dyn Fn(&Capture) -> Result<Object, EbpfError>;

/// Maps that a BPF program uses, by their names in the object.
pub(crate) type Given<'a> = [(&'a str, BorrowedFd<'a>)];

/// The parts of which a group's BPF programs are made.
pub(crate) struct Making<'a> {
    pub(crate) shape: PoolShape,
    pub(crate) given: Vec<(&'a str, BorrowedFd<'a>)>,
    pub(crate) compile: Compile<'a>,
}

impl Making<'_> {
    /// Loads the BPF program for received packets.
    pub(crate) fn received(&self) -> Result<Loaded, ProgramError> {
        first_accepted(Variant::Full, &[Variant::Copied, Variant::Plain], |it| {
            let object = self.compiled(Side::Received, it)?;
            Ok(Loaded::load_with(&object, NAME, &self.given)?)
        })
    }

    /// Loads the BPF program for sent packets. It runs the filters in the array `filters`, and
    /// shares all other maps with `received`. If the verifier refuses such a BPF program, loads one
    /// that leaves the filters to the readers.
    pub(crate) fn sent(
        &self,
        filters: BorrowedFd<'_>,
        received: &Loaded,
    ) -> Result<LoadedProgram, ProgramError> {
        let given = [&*self.given, &[(SENT_FILTERS_MAP, filters)]].concat();
        first_accepted(Variant::Copied, &[Variant::Plain], |it| {
            let object = self.compiled(Side::Sent, it)?;
            let sent = Loaded::load_sharing(&object, NAME_OF_SENT, &given, received)?;
            Ok(sent.into_program())
        })
    }

    pub(crate) fn compiled(&self, side: Side, variant: Variant) -> Result<Object, ProgramError> {
        let capture = Capture {
            shape: self.shape,
            variant,
            side,
        };
        (self.compile)(&capture).map_err(ProgramError::Compile)
    }
}

/// Loads the variant `first`, or else the first of `others` that the verifier accepts.
fn first_accepted<T>(
    first: Variant,
    others: &[Variant],
    load: impl Fn(Variant) -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    let mut loaded = load(first);
    for &variant in others {
        if matches!(loaded, Err(ProgramError::Load(LoadError::Refused(_)))) {
            loaded = load(variant);
        }
    }
    loaded
}

/// Why a group's BPF program can't be loaded.
#[derive(Debug)]
pub enum ProgramError {
    /// The steering program can't be compiled.
    Compile(EbpfError),
    /// The kernel does not load the BPF program.
    Load(LoadError),
}

impl From<LoadError> for ProgramError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<ProgramError> for Refusal {
    fn from(error: ProgramError) -> Self {
        let slug = "xdp-program-refused";
        match error {
            ProgramError::Compile(error) => Self::new(error, slug),
            ProgramError::Load(error) => Self::new(error, slug),
        }
    }
}

/// Names of the BPF programs in the kernel.
pub(crate) const NAME: &str = "fanpcap_xdp";
const NAME_OF_SENT: &str = "fanpcap_sent";
