//! Callbacks that leave pcap_loop() and pcap_dispatch() without returning.

use anyhow::Result;
use fanpcap_loading::{compile, on_ours, run, savefile};
use fanpcap_testkit::{Scratch, netns};

#[test]
fn a_callback_may_longjmp() -> Result<()> {
    reads_a_savefile("longjmp.c", "left 4 times, rest 1\n")
}

#[test]
fn a_callback_may_throw() -> Result<()> {
    reads_a_savefile("throws.cc", "caught 4 times, rest 1\n")
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn a_live_handles_callback_may_longjmp() -> Result<()> {
    reads_live("longjmp.c", "left 4 times, rest 1\n")
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn a_live_handles_callback_may_throw() -> Result<()> {
    reads_live("throws.cc", "caught 4 times, rest 1\n")
}

fn reads_a_savefile(source: &str, expected: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, source, &[])?;
    let out = run(&scratch, on_ours(&program)?.arg(savefile(&scratch)?))?.success()?;
    assert_eq!(out, expected);
    Ok(())
}

/// Runs the program with a plain handle, and with a member of a group.
fn reads_live(source: &str, expected: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, source, &[])?;
    netns::within_new(|| {
        for group in [None, Some("7")] {
            let mut command = on_ours(&program)?;
            command.arg("live:lo");
            if let Some(group) = group {
                command.env("PCAP_GROUP", group);
            }
            let out = run(&scratch, &mut command)?.success()?;
            assert_eq!(out, expected, "group {group:?}");
        }
        Ok(())
    })
}
