//! Files of other users in the directory of member pages do no harm.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::{Program, mounts};

#[test]
#[ignore = "needs root: run by make test"]
fn nobody_waits_for_a_pipe_among_the_pages() -> Result<()> {
    mounts::where_possible(|| ensure_harmless("pipe"))
}

#[test]
#[ignore = "needs root: run by make test"]
fn no_page_is_written_through_a_link() -> Result<()> {
    mounts::where_possible(|| ensure_harmless("link"))
}

#[test]
#[ignore = "needs root: run by make test"]
fn without_memory_in_run_pages_are_in_shm() -> Result<()> {
    mounts::where_possible(|| ensure_says_where_run_is_no_memory("true", "1 pages, sums known"))
}

#[test]
#[ignore = "needs root: run by make test"]
fn without_memory_in_runs_own_directory_pages_are_in_shm() -> Result<()> {
    mounts::where_possible(|| {
        let on_disk = "umount /run && mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/fanpcap && \
                   mount --bind /proc /run/fanpcap";
        ensure_says_where_run_is_no_memory(on_disk, "1 pages, sums known")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_others_put_into_shm_is_moved_aside() -> Result<()> {
    mounts::where_possible(|| {
        let planted = [
            "mkdir -m 777 /dev/shm/fanpcap",
            "mkdir -m 755 /dev/shm/fanpcap && chown nobody /dev/shm/fanpcap",
            "mkdir /dev/shm/victim && ln -s victim /dev/shm/fanpcap",
        ];
        for plant in planted {
            ensure_says_where_run_is_no_memory(plant, "1 pages, sums known")?;
        }
        Ok(())
    })
}

fn ensure_says_where_run_is_no_memory(before: &str, expected: &str) -> Result<()> {
    on_wire(1, |wire| {
        let private = format!(
            "mount --bind /proc /run && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && {before} && exec \"$@\""
        );
        let program = Program::new("unshare", "")?
            .args(["-m", "sh", "-c", &private, "sh"])
            .arg(wire.compile("sees")?)
            .args([DEVICE, "7"]);
        let said = program.run(&wire.scratch)?.said;
        ensure!(said.contains(expected), "{before}: {said}");
        Ok(())
    })
}

fn ensure_harmless(planted: &str) -> Result<()> {
    on_wire(1, |wire| {
        // A private /run, so that the machine's own /run does not change.
        let private = "mount -t tmpfs tmpfs /run && exec \"$@\"";
        let program = Program::new("unshare", "")?
            .args(["-m", "sh", "-c", private, "sh"])
            .arg(wire.compile("planted")?)
            .args([DEVICE, "7", planted]);
        let ended = program.run(&wire.scratch)?;
        let well = ended.status.success() && ended.said.contains("all is well");
        ensure!(well, "{}", ended.said);
        Ok(())
    })
}
