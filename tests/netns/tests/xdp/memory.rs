//! A memory limit that is too small for the rings.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::Program;

use crate::scene::{ensure_on_page, start_as, tcpdump};

/// A cgroup with a memory limit. Dropping this value removes the cgroup.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup with this limit in MiB. Returns `None` if the machine does not allow
    /// cgroups to be created.
    fn new(limit: u64) -> Option<Self> {
        let bytes = (limit << 20).to_string();
        let name = format!("fanpcap-test-{limit}-{}", std::process::id());
        let files = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        files.into_iter().find_map(|(mount, file)| {
            let cgroup = Self(Path::new(mount).join(&name));
            fs::create_dir(&cgroup.0).ok()?;
            let limit = cgroup.0.join(file);
            (limit.exists() && fs::write(limit, &bytes).is_ok()).then_some(cgroup)
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// tcpdump on the engine, within the cgroup.
fn limited(wire: &Wire, cgroup: &Cgroup) -> Result<Program> {
    let script = "echo $$ > \"$0/cgroup.procs\" && exec tcpdump -n -U -Z root -i \"$1\" -w \"$2\"";
    let program = Program::new("sh", "listening on")?.args(["-c", script]);
    let program = program.arg(&cgroup.0).arg(DEVICE);
    let file = wire.scratch.new_file("limited");
    Ok(program.arg(file).set("PCAP_DRIVER", "xdp"))
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_limit_is_told_with_the_sum_and_what_helps() -> Result<()> {
    on_wire(1, |wire| {
        let Some(cgroup) = Cgroup::new(70) else {
            println!("SKIP: no memory cgroup can be made");
            return Ok(());
        };
        let reason = "the rings take 64 MiB, but of the memory limit of 70 MiB, ";
        ensure_on_page(reason)?;
        let alone = limited(wire, &cgroup)?.start(&wire.scratch)?;
        let said = alone.said()?;
        ensure!(
            said.contains("packet sockets are read, not the engine xdp: "),
            "{said}"
        );
        ensure!(
            said.contains(reason) && said.contains("set a smaller ring"),
            "{said}"
        );
        ensure!(said.contains("(set by PCAP_DRIVER=xdp)"), "{said}");
        alone.stop()?;
        let other = start_as(wire, tcpdump(wire)?.group(7, "flow"))?;
        let member = limited(wire, &cgroup)?
            .group(7, "flow")
            .run(&wire.scratch)?;
        let said = member.said;
        ensure!(!member.status.success() && said.contains(reason), "{said}");
        ensure!(said.contains("(set by PCAP_DRIVER=xdp)"), "{said}");
        other.stop()?;
        let config = wire.scratch.new_file("pcap.conf");
        fs::write(&config, "driver@vb = xdp\nring@vb = 16M\n")?;
        let small = limited(wire, &cgroup)?.set("PCAP_CONFIG", config);
        start_as(wire, small)?.stop().map(drop)
    })
}

/// Two copies would fit into the limit if the cgroup used no other memory. As other memory is used,
/// the second copy must be refused.
#[test]
#[ignore = "needs root: run by make test"]
fn what_others_use_of_a_limit_counts() -> Result<()> {
    on_wire(1, |wire| {
        let Some(cgroup) = Cgroup::new(130) else {
            println!("SKIP: no memory cgroup can be made");
            return Ok(());
        };
        let copy = || limited(wire, &cgroup).map(|copy| copy.group(7, "flow"));
        let first = start_as(wire, copy()?)?;
        let second = copy()?.run(&wire.scratch)?;
        let said = second.said;
        let begin = "the rings take 64 MiB, but of the memory limit of 130 MiB, ";
        let used = said
            .split_once(begin)
            .and_then(|(_, rest)| rest.split_once(' '));
        let used = used.and_then(|(used, _)| used.parse().ok());
        ensure!(
            !second.status.success() && used.is_some_and(|used: u64| (64..130).contains(&used)),
            "{said}"
        );
        first.stop().map(drop)
    })
}
