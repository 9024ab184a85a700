//! The tiers of tests: the tests of each tier, and how the tier shares the machine with other
//! tiers.

use anyhow::Result;

use crate::programs::Program;
use crate::tally::Tally;
use crate::{deb, fuzz, guest, harness, least, symbols};

/// A tier: tests with one purpose. The tier fails if it has fewer tests than .ci/tiers requires.
#[derive(Debug)]
pub(super) struct Tier {
    /// Name in .ci/tiers.
    pub(super) name: &'static str,
    pub(super) load: Load,
    pub(super) work: &'static [Work],
    /// Arguments of the tier's test programs.
    pub(super) arguments: &'static [&'static str],
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Prepares the requirements of the tier's tests, in addition to the staged files.
    pub(super) prepare: fn() -> Result<()>,
}

/// How a tier's work shares the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Computes, at a low CPU priority.
    Computes,
    /// Mostly waits, for packets, processes and timers.
    Waits,
    /// Needs the machine without other work.
    Alone,
}

/// What a tier runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Own(fn() -> Result<Tally>),
    /// All test programs of a package.
    Package(&'static str),
    /// These test programs, by package and name.
    Programs(&'static [(&'static str, &'static str)]),
    /// All programs that no tier names.
    Others,
}

impl Work {
    /// How closely the work names a program; `None` if the program is not part of the work. A
    /// program belongs to the tier that names the program itself. If no tier names the program, it
    /// belongs to the tier that names its package. If no tier names the package either, it belongs
    /// to the tier with [`Work::Others`].
    pub(super) fn closeness(self, program: &Program) -> Option<u8> {
        match self {
            Self::Own(_) => None,
            Self::Others => Some(0),
            Self::Package(package) => (program.package == package).then_some(1),
            Self::Programs(some) => {
                let is_it = |(package, name)| program.package == package && program.name == name;
                some.iter().copied().any(is_it).then_some(2)
            }
        }
    }
}

const NONE: Tier = Tier {
    name: "",
    load: Load::Computes,
    work: &[],
    arguments: &[],
    environment: &[],
    prepare: || Ok(()),
};

/// Inputs for each property in `make test`.
const CASES: &[(&str, &str)] = &[("PROPTEST_CASES", "10000")];

/// The tiers of `make test`. Tiers with the same load begin in this order, the longest first.
pub(super) const TIERS: &[Tier] = &[
    Tier {
        name: "symbols",
        work: &[Work::Own(symbols::run)],
        ..NONE
    },
    Tier {
        name: "least",
        work: &[Work::Own(least::run)],
        ..NONE
    },
    Tier {
        name: "unit",
        work: &[Work::Others, Work::Own(documentation)],
        ..NONE
    },
    Tier {
        name: "steering",
        work: &[
            Work::Package("fanpcap-steer"),
            Work::Package("fanpcap-steer-testkit"),
        ],
        ..NONE
    },
    Tier {
        name: "properties",
        work: &[Work::Programs(fuzz::PROPERTIES)],
        environment: CASES,
        ..NONE
    },
    Tier {
        name: "packets",
        load: Load::Waits,
        work: &[Work::Package("fanpcap-netns")],
        arguments: &["--test-threads=4"],
        ..NONE
    },
    Tier {
        name: "tools",
        load: Load::Waits,
        work: &[
            Work::Package("fanpcap-terminal"),
            Work::Package("fanpcap-install"),
            Work::Package("fanpcap-snapshot"),
            Work::Package("fanpcap-capture"),
            Work::Package("fanpcap-run"),
            Work::Package("fanpcap-external"),
            Work::Package("fanpcap-doctor"),
            Work::Package("fanpcap-cli"),
            Work::Package("fanpcap-gen"),
            Work::Package("fanpcap-bench"),
            Work::Package("fanpcap-ipfix"),
        ],
        arguments: &["--test-threads=4"],
        ..NONE
    },
    Tier {
        name: "conformance",
        load: Load::Waits,
        work: &[Work::Package("fanpcap-conformance")],
        arguments: &["--test-threads=6"],
        ..NONE
    },
    Tier {
        name: "faults",
        load: Load::Waits,
        work: &[Work::Package("fanpcap-faults")],
        arguments: &["--test-threads=6"],
        ..NONE
    },
    Tier {
        name: "loading",
        load: Load::Waits,
        work: &[Work::Programs(&[("fanpcap-loading", "loading")])],
        ..NONE
    },
    Tier {
        name: "manual",
        load: Load::Waits,
        work: &[Work::Programs(&[
            ("fanpcap-loading", "manual"),
            ("fanpcap-loading", "examples"),
        ])],
        ..NONE
    },
    Tier {
        name: "package",
        load: Load::Waits,
        work: &[Work::Package("fanpcap-package-tests")],
        prepare: package,
        ..NONE
    },
    Tier {
        name: "cluster",
        load: Load::Waits,
        work: &[
            Work::Package("fanpcap-etcd"),
            Work::Package("fanpcap-clusterd"),
            Work::Package("fanpcap-demo-cluster"),
        ],
        arguments: &["--test-threads=4"],
        ..NONE
    },
    // This tier runs alone, because its tests need a mirror that drops no packet.
    Tier {
        name: "proofs",
        load: Load::Alone,
        work: &[Work::Programs(&[("fanpcap-clusterd", "proof")])],
        arguments: &["--test-threads=6"],
        ..NONE
    },
    Tier {
        name: "soak",
        load: Load::Alone,
        work: &[Work::Package("fanpcap-soak")],
        ..NONE
    },
];

/// Builds the Debian package. If the package can't be built here, its tests report this.
fn package() -> Result<()> {
    if deb::can_build() {
        deb::of_staged()
    } else {
        Ok(())
    }
}

/// The tiers that `make test-long` runs besides the long tests of the programs above.
pub(super) const LONG_TIERS: &[Tier] = &[
    Tier {
        name: "parquet",
        work: &[Work::Own(parquet)],
        ..NONE
    },
    Tier {
        name: "fuzz",
        work: &[Work::Own(fuzz::run)],
        ..NONE
    },
    Tier {
        name: "guest",
        load: Load::Alone,
        work: &[Work::Own(guests)],
        ..NONE
    },
];

/// Runs the tests of the feature `parquet`, which needs many crates.
fn parquet() -> Result<Tally> {
    let words = "-p fanpcap-clusterd --features fanpcap-clusterd/parquet --lib";
    let words: Vec<&str> = words.split(' ').collect();
    harness::cargo_test(&words, &[])
}

/// Runs the tests in guests, with all kernels.
fn guests() -> Result<Tally> {
    guest::run(&[])
}

/// Runs the examples in the documentation of crates.
fn documentation() -> Result<Tally> {
    let words = "--workspace --exclude fanpcap-faults --exclude fanpcap-fuzz --doc".split(' ');
    harness::cargo_test(&words.collect::<Vec<_>>(), &[])
}
