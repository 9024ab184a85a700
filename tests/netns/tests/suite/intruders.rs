//! A user who has no capabilities gets access to nothing that belongs to another user's group, and
//! does not disturb the group (`docs/security.md`).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fanpcap_engine::root;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{Member, Program, await_for, mounts, traffic};

const PROGRAM: &str = "open main = steer_flow";
const FRAMES: u64 = 2000;

fn start_intruder(wire: &Wire, members: &[&Dialog]) -> Result<Member> {
    let pids: Vec<String> = members.iter().map(|it| it.pid().to_string()).collect();
    let intruder = Program::new(wire.compile("intruder")?, "tried\n")?.ends_with_caller();
    let intruder = intruder.arg(root::make_root()?).args(pids);
    intruder.start(&wire.scratch)
}

/// Sends some frames, and checks that these members together get all of them.
fn ensure_all_arrive(wire: &Wire, members: &mut [Dialog], seed: u64) -> Result<()> {
    let count = |members: &mut [Dialog]| {
        let counts = members.iter_mut().map(|member| member.count(0));
        counts.sum::<Result<usize>>()
    };
    let before = count(members)?;
    let frames = traffic::frames(seed, &traffic::flows(seed, 200), 0..FRAMES)?;
    wire.send(&frames)?;
    await_for("all frames", LIMIT, || {
        let now = count(members)? - before;
        ensure!(now <= frames.len(), "{now}");
        Ok((now == frames.len()).then_some(()))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_user_gets_nothing_of_a_group_and_is_not_in_its_way() -> Result<()> {
    on_wire(1, |wire| {
        let open = || {
            let mut member = Dialog::start(wire, 7)?;
            member.expect(PROGRAM, "opened 0")?;
            anyhow::Ok(member)
        };
        let mut members = vec![open()?, open()?, open()?];
        let before = members.iter().collect::<Vec<_>>();
        let intruder = start_intruder(wire, &before)?;
        ensure_all_arrive(wire, &mut members, 1)?;
        for seed in 2..6 {
            // While the intruder tries, a member is killed and removed, and another member joins.
            let began = Instant::now();
            drop(members.remove(0));
            ensure_all_arrive(wire, &mut members, seed)?;
            members.push(open()?);
            ensure_all_arrive(wire, &mut members, seed + 10)?;
            let took = began.elapsed();
            ensure!(took < Duration::from_secs(5), "{took:?}");
        }
        let said = intruder.stop()?.said;
        ensure!(!said.contains("got "), "{said}");
        ensure!(said.matches("tried").count() > 3, "{said}");
        Ok(())
    })
}

/// A shell command with three steps. It mounts a file system that is not in memory at `/run`, so
/// that the pages are in `/dev/shm`. It lets another user fill `/dev/shm`. Then it executes its
/// arguments.
const FULL: &str = "mount --bind /usr /run && mount -t tmpfs -o mode=1777,size=64k tmpfs /dev/shm && \
                    { setpriv --reuid=65534 --regid=65534 --clear-groups \
                    dd if=/dev/zero of=/dev/shm/all bs=4k 2>/dev/null; exec \"$@\"; }";

#[test]
#[ignore = "needs root: run by make test"]
fn who_finds_no_room_for_a_page_is_told_and_captures_alone() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let words = ["unshare", "-m", "sh", "-c", FULL, "sh"];
            let mut one = Dialog::behind(wire, 7, &words)?;
            one.expect(PROGRAM, "opened 0")?;
            let there = format!("--mount=/proc/{}/ns/mnt", one.pid());
            let mut other = Dialog::behind(wire, 7, &["nsenter", &there])?;
            let said = other.ask(PROGRAM)?;
            let reason = "none of them can be joined: no member has a page";
            ensure!(said.contains(reason), "{said}");
            let mut one = [one];
            ensure_all_arrive(wire, &mut one, 1)
        })
    })
}
