//! Selects the tests that run in guests.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::{programs, tree};

/// Tests of one program, chosen by parts of their names. If `names` is empty, all tests of the
/// program.
struct Tests {
    package: &'static str,
    program: &'static str,
    names: &'static [&'static str],
    needs: Option<&'static Feature>,
}

/// A feature that tests need, and the first kernel version that has the feature.
#[derive(Debug)]
pub(super) struct Feature {
    since: (u32, u32),
    without: &'static str,
}

/// For tests that also capture the packets that the host sends.
const TCX: Feature = Feature {
    since: (6, 6),
    without: "no BPF programs at a device's traffic control (tcx, Linux 6.6)",
};

/// For tests with many changes of a card, which are slow and do not depend on the kernel's version.
const NEWEST: Feature = Feature {
    since: (6, 12),
    without: "on the newest kernel only",
};

/// The package of the tests on network cards.
const CARDS: &str = "fanpcap-guest-tests";

/// All tests of a program on network cards.
const fn cards(program: &'static str, needs: Option<&'static Feature>) -> Tests {
    Tests {
        package: CARDS,
        program,
        names: &[],
        needs,
    }
}

/// The tests. They are few, because emulation is slow: one test for each claim about the kernel. No
/// test measures time, and in no test must a successor join within two seconds.
const SUBSET: &[Tests] = &[
    cards("cards", None),
    cards("placement", Some(&NEWEST)),
    cards("tuning", Some(&NEWEST)),
    cards("adapting", Some(&NEWEST)),
    Tests {
        package: "fanpcap-netns",
        program: "suite",
        names: &[
            "groups::each_group_sees",
            "modes::hash_keeps_both",
            "modes::lb_gives",
            "modes::qm_gives",
            "modes::defrag_keeps",
            "defaults::a_group_without_a_mode",
            "defaults::where_flow_cannot",
            "steering::two_capabilities",
            "steering::the_counters_of_all",
            "steering::what_a_program_drops",
            "replacing::of_two_processes",
            "membership::deaths::members_that_leave_lose",
            "membership::deaths::members_that_are_killed_lose",
            "membership::deaths::members_that_hang_and_are_killed_lose",
            "membership::deaths::members_without_privileges",
            "membership::joins::each_newcomer",
            "membership::device_groups::both_directions_move_together_when_members_come",
            "membership::relinked::a_device_that_was_down",
            "membership::schedules::chosen::members_that_hang_lose",
            "membership::sticky::newcomers_move",
        ],
        needs: None,
    },
    Tests {
        package: "fanpcap-netns",
        program: "suite",
        names: &[
            "frames::frames_of_9000",
            "frames::tags_beside",
            "membership::on_xdp::each_newcomer",
            "membership::on_xdp::members_that_hang_and",
        ],
        needs: Some(&TCX),
    },
    Tests {
        package: "fanpcap-netns",
        program: "steering",
        names: &[
            "counting::counters_add_up",
            "flows::",
            "fragments::",
            "newcomers::",
            "queues::",
            "runts::",
            "tags::",
        ],
        needs: None,
    },
    Tests {
        package: "fanpcap-netns",
        program: "xdp",
        names: &[
            "calls::counters_add_up",
            "calls::directions",
            "calls::filters_hold",
            "calls::what_a_filter",
            "captures::",
            "devices::one_handle",
            "groups::each_group",
            "groups::others_go_on",
            "host::",
            "refusals::",
            "remains::",
            "sent_filters::",
        ],
        needs: Some(&TCX),
    },
    Tests {
        package: "fanpcap-poller",
        program: "hostile",
        names: &["descriptors::"],
        needs: None,
    },
];

/// The packages of the library's code, whose unit tests run on arm64.
const LIBRARY: &str = "-p fanpcap-abi -p fanpcap -p fanpcap-bpf -p fanpcap-buckets \
    -p fanpcap-config -p fanpcap-engine -p fanpcap-engines -p fanpcap-group -p fanpcap-linux \
    -p fanpcap-nic -p fanpcap-pcap -p fanpcap-reader -p fanpcap-ring -p fanpcap-steer \
    -p fanpcap-tpacket -p fanpcap-wire -p fanpcap-xdp";

/// Ways in which an application loads the library. Other tests of loading need tools that take long
/// in a guest.
const LOADING: Tests = Tests {
    package: "fanpcap-loading",
    program: "loading",
    names: &["first::", "ways::"],
    needs: None,
};

/// The unit tests of a package: no test that measures time, and none of programs that Debian's
/// kernels load only with CAP_PERFMON (docs/xdp.md). Nor a test in which all CPUs run a BPF program
/// while other tests begin to run theirs: Linux 6.12 then patches its own code
/// (`bpf_dispatcher_xdp_func`), and an emulated CPU may run the old code, which ends the guest.
const UNIT: Tests = Tests {
    package: "",
    program: "",
    names: &[
        "--skip=ebpf::tests::speed",
        "--skip=ebpf::tests::privilege::cap_bpf_and_net_admin",
        "--skip=port::tests::no_reader_sleeps",
    ],
    needs: None,
};

/// A built test program, and the tests of this program that run in guests.
pub(super) struct Program {
    built: programs::Program,
    tests: &'static Tests,
}

impl Program {
    /// Why the tests don't run on the kernel of this series.
    pub(super) fn hindrance(&self, series: &str) -> Option<&'static str> {
        let needs = self.tests.needs?;
        (version(series) < needs.since).then_some(needs.without)
    }

    /// The names of these tests in the list of skipped tests.
    pub(super) fn labels(&self) -> Vec<&str> {
        match self.tests.names {
            [] => vec![&self.built.name],
            names => names.iter().map(|it| it.trim_end_matches("::")).collect(),
        }
    }
}

/// The numbers of a series, such as 6.12.
fn version(series: &str) -> (u32, u32) {
    let (major, minor) = series.split_once('.').unwrap_or((series, "0"));
    (major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
}

/// Builds the programs.
pub(super) fn build() -> Result<Vec<Program>> {
    build_these(SUBSET)
}

/// Builds the programs of a guest of another architecture, which also runs the library's unit
/// tests.
pub(super) fn build_foreign() -> Result<Vec<Program>> {
    let arguments: Vec<&str> = ["--lib"]
        .into_iter()
        .chain(LIBRARY.split_whitespace())
        .collect();
    let unit = programs::build(&arguments)?.into_iter();
    let mut programs: Vec<Program> = unit
        .map(|built| Program {
            built,
            tests: &UNIT,
        })
        .collect();
    programs.extend(build_these(&[LOADING])?);
    // The emulated interrupt controller of arm64 loses interrupts whose CPU changes.
    let is_of_cards = |it: &Program| it.tests.package == CARDS;
    programs.extend(build()?.into_iter().filter(|it| !is_of_cards(it)));
    Ok(programs)
}

fn build_these(chosen_tests: &'static [Tests]) -> Result<Vec<Program>> {
    let mut arguments = Vec::new();
    for tests in chosen_tests {
        arguments.extend(["-p", tests.package, "--test", tests.program]);
    }
    let built = programs::build(&arguments)?;
    chosen_tests.iter().map(|it| chosen(it, &built)).collect()
}

/// Finds the tests' program among the built programs.
fn chosen(tests: &'static Tests, built: &[programs::Program]) -> Result<Program> {
    let is_it = |it: &&programs::Program| it.package == tests.package && it.name == tests.program;
    let found = built.iter().find(is_it).cloned();
    let built = found.with_context(|| format!("cargo has built no {}", tests.program))?;
    Ok(Program { built, tests })
}

/// The guest's command. It fails if a program fails.
pub(super) fn script(programs: &[&Program]) -> Result<String> {
    let library = tree::staged()?.join("lib");
    let mut lines = format!(
        "export RUST_BACKTRACE=0 FANPCAP_PATIENCE=5 FANPCAP_LIB_DIR={}\nfailed=0\n",
        quoted(&library)?
    );
    for program in programs {
        let dir = quoted(program.built.dir())?;
        let line = format!(
            "cd {dir}\nCARGO_MANIFEST_DIR={dir} {} {} {} || failed=1\n",
            quoted(program.built.path())?,
            HARNESS,
            program.tests.names.join(" ")
        );
        lines.push_str(&line);
    }
    Ok(lines + "exit $failed\n")
}

const HARNESS: &str = "--include-ignored --test-threads=2 --show-output --format=pretty";

/// The path as a word of the shell.
fn quoted(path: &Path) -> Result<String> {
    let path = path.to_str().context("a path that is not UTF-8")?;
    ensure!(!path.contains('\''), "an apostrophe in {path}");
    Ok(format!("'{path}'"))
}

/// The parts of names that no test that ran has in its name. If a test is renamed, this check
/// fails; without it, guests would silently no longer run the test.
pub(super) fn unmatched(programs: &[&Program], output: &str) -> Vec<&'static str> {
    let tests: Vec<&str> = output
        .lines()
        .filter_map(|line| line.strip_prefix("test "))
        .collect();
    let names = programs.iter().flat_map(|program| program.tests.names);
    names
        .copied()
        .filter(|name| !tests.iter().any(|test| test.contains(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_skipped_where_the_kernel_is_too_old() {
        static TESTS: Tests = Tests {
            package: "",
            program: "",
            names: &["a::"],
            needs: Some(&TCX),
        };
        let program = Program {
            built: programs::Program::default(),
            tests: &TESTS,
        };
        assert_eq!(program.hindrance("6.1"), Some(TCX.without));
        assert_eq!(program.hindrance("6.12"), None);
    }

    #[test]
    fn a_name_that_no_test_has_is_found() {
        static TESTS: Tests = Tests {
            package: "",
            program: "",
            names: &["a::", "b::"],
            needs: None,
        };
        let program = Program {
            built: programs::Program::default(),
            tests: &TESTS,
        };
        assert_eq!(unmatched(&[&program], "test a::x ... ok\n"), ["b::"]);
    }
}
