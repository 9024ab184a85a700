//! In an application that also loads the system's library, our library must work as usual.

use anyhow::{Result, ensure};
use fanpcap_loading::{LIBRARY, compile, library_dir, on_ours, on_system, run, system_library};
use fanpcap_testkit::{Scratch, netns};

use crate::ways::MARK;

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn a_handle_opened_in_a_callback_joins_its_group() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "inside.c", &[])?;
    netns::within_new(|| {
        let mut command = on_ours(&program)?;
        command.arg(system_library()?).env("PCAP_GROUP", "7");
        let out = run(&scratch, &mut command)?.success()?;
        assert_eq!(out, "outside 7\ninside 7\n");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn ours_works_in_a_program_on_the_systems() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "beside.c", &[])?;
    netns::within_new(|| {
        let mut command = on_system(&program);
        command.arg(library_dir()?.join(LIBRARY));
        let ended = run(&scratch, command.env("PCAP_GROUP", "7"))?;
        ensure!(!ended.err.contains(MARK), "it ran on {}", ended.err);
        assert_eq!(ended.success()?, "open_live 7, create 7\n");
        Ok(())
    })
}
