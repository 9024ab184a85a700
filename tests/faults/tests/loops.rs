//! Makes system calls fail one after another. After any failure nothing crashes or leaks, a refused
//! application gets the reason, and the next attempt succeeds.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use fanpcap_faults::{Failure, Loop, OTHER_NAME, PASSES, Pass, Programs};
use fanpcap_testkit::mounts;

/// The ways to read a plain handle's ring. Each loop on an open handle runs with each of them.
const DRIVERS: [&[(&str, &str)]; 2] = [&[], &[("PCAP_DRIVER", "tpacket")]];

/// An error of the system's library. The test allows our library to make the same error if the
/// system's library really makes it when it runs alone.
struct Systems {
    operation: &'static str,
    wrong: &'static str,
    reason: &'static str,
}

const SYSTEMS: [Systems; 1] = [Systems {
    operation: "create",
    wrong: "leaks-descriptor(anon_inode:)",
    reason: "pcap_create() makes an eventfd, which pcap_close() closes only after pcap_activate()",
}];

#[test]
#[ignore = "needs root: run by make test"]
fn loading() -> Result<()> {
    let passes = [Pass::Resources, Pass::Exhausted];
    Scene::new()?.ensure_sound(Loop::plain("load"), &passes)
}

#[test]
#[ignore = "needs root: run by make test"]
fn opening_a_plain_handle() -> Result<()> {
    ensure_plain_sound(&["create", "open", "open-live"])
}

/// Runs operations on a plain handle with each driver.
fn ensure_plain_sound(operations: &[&'static str]) -> Result<()> {
    let scene = Scene::new()?;
    for environment in DRIVERS {
        for &operation in operations {
            let plain = Loop {
                environment,
                ..Loop::plain(operation)
            };
            scene.ensure_sound(plain, &PASSES)?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn opening_a_member() -> Result<()> {
    Scene::new()?.ensure_sound(Loop::member("open"), &PASSES)
}

#[test]
#[ignore = "needs root: run by make test"]
fn opening_a_member_by_a_devices_other_name() -> Result<()> {
    let by_other_name = Loop {
        device: OTHER_NAME,
        environment: &[("PCAP_GROUP_vb", "7"), ("PCAP_FANOUT", "lb")],
        ..Loop::member("open-live")
    };
    Scene::new()?.ensure_sound(by_other_name, &PASSES)
}

#[test]
#[ignore = "needs root: run by make test"]
fn joining_late() -> Result<()> {
    Scene::new()?.ensure_sound(Loop::member("join-late"), &PASSES)
}

#[test]
#[ignore = "needs root: run by make test"]
fn using_a_plain_handle() -> Result<()> {
    ensure_plain_sound(&USES)
}

#[test]
#[ignore = "needs root: run by make test"]
fn using_a_member() -> Result<()> {
    let scene = Scene::new()?;
    for operation in USES {
        scene.ensure_sound(Loop::member(operation), &PASSES)?;
    }
    scene.ensure_sound(Loop::member("fanout-stats"), &PASSES)
}

const USES: [&str; 6] = [
    "setfilter",
    "dispatch",
    "dispatch-blocked",
    "setnonblock",
    "stats",
    "close",
];

#[test]
#[ignore = "needs root: run by make test"]
fn a_plain_handle_fails_in_the_words_of_the_systems() -> Result<()> {
    if is_hindered()? {
        return Ok(());
    }
    let scene = Scene::new()?;
    for operation in ["open", "setfilter", "dispatch-blocked", "stats"] {
        let ours = outcomes(&Loop::plain(operation).run(&scene.programs, &PASSES)?);
        let systems = outcomes(&Loop::systems(operation).run(&scene.programs, &PASSES)?);
        // Our library makes some more calls of its own, so only the calls of the system's library
        // must occur in both sets.
        let other = systems.difference(&ours).next();
        ensure!(
            other.is_none(),
            "{operation}: on our library {other:?} is missing: {ours:#?}"
        );
    }
    Ok(())
}

/// The calls that failed. For each call: its error, and the operation's status and message.
fn outcomes(failures: &[Failure]) -> BTreeSet<(Option<String>, String, i32, String)> {
    let outcome = |failure: &Failure| {
        let Failure {
            call,
            errno,
            status,
            message,
            ..
        } = failure.clone();
        (call, errno, status, message)
    };
    failures.iter().map(outcome).collect()
}

/// Whether the operations can't run on this machine, because they need their own mounts. If so,
/// prints the reason.
#[expect(clippy::print_stdout, reason = "what a test prints is how it says so")]
fn is_hindered() -> Result<bool> {
    let hindrance = mounts::hindrance()?;
    if let Some(reason) = &hindrance {
        println!("SKIP: {reason}");
    }
    Ok(hindrance.is_some())
}

struct Scene {
    programs: Programs,
    /// The results of the system's library alone for the operations in [`SYSTEMS`].
    systems: OnceCell<Vec<Failure>>,
}

impl Scene {
    fn new() -> Result<Self> {
        let (programs, systems) = (Programs::compile()?, OnceCell::new());
        Ok(Self { programs, systems })
    }

    /// Checks that our library makes no errors except those that the system's library also makes.
    fn ensure_sound(&self, of: Loop, passes: &[Pass]) -> Result<()> {
        if is_hindered()? {
            return Ok(());
        }
        let failures = of.run(&self.programs, passes)?;
        // pcap_dispatch() makes no system call while packets wait, so no call can fail in this
        // operation.
        let some =
            of.operation == "dispatch" || failures.iter().any(|failure| failure.call.is_some());
        ensure!(some, "{of:?}: no system call failed");
        for failure in &failures {
            for wrong in &failure.wrong {
                self.ensure_systems_does(wrong)
                    .with_context(|| format!("{of:?}: {failure:#?}"))?;
            }
        }
        Ok(())
    }

    /// Checks that [`SYSTEMS`] lists this error, and that the system's library really makes it.
    fn ensure_systems_does(&self, wrong: &str) -> Result<()> {
        let systems = SYSTEMS.iter().find(|systems| systems.wrong == wrong);
        let systems = systems.with_context(|| format!("{wrong}: not in SYSTEMS"))?;
        if self.systems.get().is_none() {
            let failures = Loop::systems(systems.operation).run(&self.programs, &PASSES)?;
            let _ = self.systems.set(failures);
        }
        let mut failures = self.systems.get().into_iter().flatten();
        let does = failures.any(|failure| failure.wrong.contains(wrong));
        ensure!(
            does,
            "the system's library no longer makes the error {wrong}: {}",
            systems.reason
        );
        Ok(())
    }
}
