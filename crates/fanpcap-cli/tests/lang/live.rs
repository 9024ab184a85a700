//! Compares `fanpcap lang try` with the kernel. A group on a device must give each member the
//! packets that `try` reports for it.

use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Description, Families, Lengths, Transports};
use fanpcap_group::record::LastLook;
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{Injector, Member, Program, Scratch, Veth, await_for, library, netns};
use serde_json::Value;

use super::{Capture, frames, per_member};

const MEMBERS: u16 = 4;

/// About 3000 packets of all kinds: plain, tagged, in tunnels, and in fragments, some of which come
/// late.
fn mixed() -> Result<Vec<Vec<u8>>> {
    let plain = Description {
        flows: 256,
        families: Families::Both,
        transports: Transports::Both,
        answers: true,
        ..Description::default()
    };
    let tagged = Description {
        vlans: vec![42],
        seed: 2,
        ..plain.clone()
    };
    let stacked = Description {
        vlans: vec![7, 8],
        seed: 3,
        ..plain.clone()
    };
    let tunnelled = Description {
        vxlan: Some(5),
        seed: 4,
        ..plain.clone()
    };
    let fragmented = Description {
        fragments: Some(1),
        transports: Transports::Udp,
        lengths: Lengths::Fixed(600),
        flows: 64,
        seed: 5,
        ..plain.clone()
    };
    let mut all = Vec::new();
    for description in [plain, tagged, stacked, tunnelled] {
        all.extend(frames(&description.pool()?));
    }
    let mut fragments = frames(&fragmented.pool()?);
    fragments.truncate(3 * 300);
    fragments
        .chunks_exact_mut(15)
        .for_each(|five| five.swap(0, 1));
    all.extend(fragments);
    Ok(all)
}

/// Returns how many of the frames each thread of a group with this program captures. `kept` is the
/// number of frames that the program does not drop, for which the function waits.
fn captured(program: &str, frames: &[Vec<u8>], kept: u64) -> Result<Vec<u64>> {
    let (veth, scratch) = (Veth::new("near", "far", 1)?, Scratch::new()?);
    let member = Program::new(env!("CARGO_BIN_EXE_fanpcap"), "capturing on far")?
        .set("FANPCAP_LIB_DIR", library::library_dir()?)
        .args(["capture", "-i", "far", "--json", "--threads"])
        .args([&MEMBERS.to_string(), "--fanout", program])
        .start(&scratch)?;
    await_for("members with their shares", LIMIT, || {
        let waits = |it: &RosterEntry| {
            let page = it.page.as_ref();
            page.is_some_and(|page| page.last_look == LastLook::Waits)
        };
        let entries = roster::entries()?;
        let count = entries.iter().filter(|it| waits(it)).count();
        Ok((count == usize::from(MEMBERS)).then_some(()))
    })?;
    Injector::open(veth.near)?.send_all(frames)?;
    await_for(&format!("{kept} packets received"), LIMIT, || {
        let total = last(&member)?["total"]["received_by_filter"].as_u64();
        Ok((total >= Some(kept)).then_some(()))
    })?;
    member.signal("TERM")?;
    let ended = member.wait()?;
    ensure!(ended.status.success(), "{}", ended.said);
    let summary = ended.said.lines().rev().find(|line| line.starts_with('{'));
    let summary: Value = serde_json::from_str(summary.context("no summary")?)?;
    let threads = summary["threads"].as_array().context("no threads")?.iter();
    Ok(threads
        .filter_map(|thread| thread["captured"].as_u64())
        .collect())
}

/// The last JSON object that the member has printed, or null if it has printed none.
fn last(member: &Member) -> Result<Value> {
    let said = member.said()?;
    let mut lines = said.lines().rev().filter(|line| line.starts_with('{'));
    let whole = lines.find_map(|line| serde_json::from_str(line).ok());
    Ok(whole.unwrap_or_default())
}

#[test]
#[ignore = "needs root: a network namespace, eBPF"]
fn a_group_does_what_was_told() -> Result<()> {
    let frames = mixed()?;
    let capture = Capture::of(frames.iter().map(Vec::as_slice), usize::MAX)?;
    for program in [
        "main = par3 (inner steer_flow) steer_link (steer_to 0)",
        "main = tcp >-> steer_key \"ip_src\"",
        "main = unless (has_port 53) steer_link >-> steer_field 26 4",
        "main = filter (vlan_id [7, 42]) >-> steer_flow",
        "main = when has_inner drop >-> steer_flow",
        "main = steer_vlan",
    ] {
        let told = capture.tried(program, MEMBERS)?;
        let packets = per_member(&told, "packets");
        let kept = packets.iter().sum();
        ensure!(kept > 500, "{program}: {told}");
        let captured = netns::within_new(|| captured(program, &frames, kept))?;
        assert_eq!(captured, packets, "{program}");
    }
    Ok(())
}
