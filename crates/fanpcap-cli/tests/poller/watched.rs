//! What `fanpcap group`, `top` and `metrics` show of a poller's members, and how `fanpcap group`
//! changes their shares: on both sources, with tcpdump.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Injector, Member, Program, Scratch, Veth, needs, traffic};
use serde_json::Value;

use crate::running::{self, Poller, within};
use crate::{FAR, NEAR};

const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");

/// A poller of the device [`FAR`] and two copies of tcpdump in group 5.
struct Scene {
    engine: &'static str,
    injector: Injector,
    members: Vec<Member>,
    sent: u64,
    _poller: Poller,
    _scratch: Scratch,
}

fn fanpcap(arguments: &str) -> Result<Output> {
    let mut command = Command::new(COMMAND);
    Ok(command.args(arguments.split_whitespace()).output()?)
}

/// The output of a command that must succeed.
pub(crate) fn printed(arguments: &str) -> Result<String> {
    let output = fanpcap(arguments)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{arguments}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// What a command says that must fail.
fn refused(arguments: &str) -> Result<String> {
    let output = fanpcap(arguments)?;
    ensure!(!output.status.success(), "{arguments} has not failed");
    Ok(String::from_utf8(output.stderr)?)
}

impl Scene {
    fn new(engine: &'static str) -> Result<Self> {
        Veth::new(NEAR, FAR, 1)?;
        let scratch = Scratch::new()?;
        let poller = Poller::start(&format!("{engine}:{FAR}"), 1)?;
        let start = |number| {
            let file = scratch.file(&format!("{number}.pcap"));
            let program = Program::tcpdump(&format!("{engine}:{FAR}"), file)?;
            program.group(5, "flow").start(&scratch)
        };
        let scene = Self {
            engine,
            injector: Injector::open(NEAR)?,
            members: (0..2).map(start).collect::<Result<_>>()?,
            sent: 0,
            _poller: poller,
            _scratch: scratch,
        };
        scene.await_buckets([2048, 2048])?;
        Ok(scene)
    }

    fn device(&self) -> String {
        format!("{}:{FAR}", self.engine)
    }

    fn group(&self) -> Result<Value> {
        let device = self.device();
        Ok(serde_json::from_str(&printed(&format!(
            "group {device} 5 --json"
        ))?)?)
    }

    fn await_buckets(&self, expected: [u64; 2]) -> Result<Value> {
        await_for("the members' buckets", LIMIT, || {
            let told = self.group()?;
            let slots = told["slots"].as_array().context("slots")?;
            let buckets = slots.iter().filter_map(|it| it["buckets"].as_u64());
            let are_there = buckets.eq(expected);
            Ok(are_there.then_some(told))
        })
    }

    /// Sends frames of many flows, and waits until the members have captured them. Returns how many
    /// of them each member has.
    fn send(&mut self, count: u64) -> Result<Vec<u64>> {
        let captured = |it: &Member| it.captured() as u64;
        let before: Vec<u64> = self.members.iter().map(captured).collect();
        let numbers = self.sent..self.sent + count;
        let frames = traffic::frames(7, &traffic::flows(7, 200), numbers)?;
        self.injector.send_all(&frames)?;
        self.sent += count;
        await_for("the frames", LIMIT, || {
            let sum: u64 = self.members.iter().map(captured).sum();
            Ok((sum >= self.sent).then_some(()))
        })?;
        let now = self.members.iter().map(captured);
        Ok(now.zip(before).map(|(now, before)| now - before).collect())
    }
}

fn on_both(test: impl Fn(Scene) -> Result<()> + Send + Sync) -> Result<()> {
    for engine in ["packet", "afxdp"] {
        within(|| test(Scene::new(engine)?).with_context(|| engine))?;
    }
    Ok(())
}

/// The samples of a metric of group 5: their labels and numbers.
pub(crate) fn samples(metrics: &str, name: &str) -> Vec<(String, u64)> {
    let of_metric = |line: &str| {
        let (labels, number) = line.strip_prefix(name)?.rsplit_once(' ')?;
        Some((labels.to_owned(), number.parse().ok()?))
    };
    metrics.lines().filter_map(of_metric).collect()
}

fn sum(samples: &[(String, u64)]) -> u64 {
    samples.iter().map(|(_, number)| number).sum()
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn group_top_and_metrics_show_members_with_counts_that_equal_what_was_sent() -> Result<()> {
    on_both(|mut scene| {
        let shares = scene.send(3000)?;
        let (device, engine) = (scene.device(), scene.engine);
        let told = scene.group()?;
        assert_eq!(told["mode"], format!("flow on {engine}"));
        assert_eq!(
            (&told["device"], &told["is_steered"]),
            (&Value::from(&*device), &true.into())
        );
        assert_eq!(told["ledger"]["offered_packets_total"], 3000);
        assert_eq!(told["ledger"]["in_rings_packets_total"], 3000);
        let slots = told["slots"].as_array().context("slots")?;
        for (slot, member) in slots.iter().zip(&scene.members) {
            assert_eq!(
                (&slot["pid"], &slot["state"]),
                (&member.pid().into(), &"live".into())
            );
            assert_eq!(
                (&slot["program"], &slot["weight"]),
                (&"tcpdump".into(), &1.into())
            );
        }

        let metrics = printed("metrics")?;
        let received = samples(&metrics, "fanpcap_member_received_packets_total{");
        let numbers: Vec<u64> = received.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, shares);
        assert!(
            received[0].0.contains(&format!("device=\"{device}\"")),
            "{received:?}"
        );
        assert_eq!(
            sum(&samples(&metrics, "fanpcap_member_taken_packets_total{")),
            3000
        );
        assert_eq!(
            sum(&samples(&metrics, "fanpcap_member_dropped_packets_total{")),
            0
        );
        assert_eq!(sum(&samples(&metrics, "fanpcap_member_buckets{")), 4096);
        assert_eq!(
            sum(&samples(&metrics, "fanpcap_poller_received_packets_total{")),
            3000
        );
        assert_eq!(
            sum(&samples(&metrics, "fanpcap_poller_dropped_packets_total{")),
            0
        );

        let top = printed(&format!("top {device} --once --json --interval 0.1"))?;
        let top: Value = serde_json::from_str(&top)?;
        let group = &top["devices"][0]["groups"][0];
        assert_eq!(
            (&group["group"], &group["members_total"]),
            (&5.into(), &2.into())
        );
        assert_eq!(group["received_packets_total"], 3000);
        assert_eq!(group["ring_full_drops_total"], 0);
        assert_eq!(group["backlog_packets"], 0);
        assert_eq!(top["devices"][0]["received_packets_total"], 3000);
        let list = printed(&format!("group {FAR}"))?;
        assert!(list.contains(&device) && list.contains("tcpdump"), "{list}");
        let by_device = printed(&format!("group {FAR} 5"))?;
        assert!(by_device.contains("2 members"), "{by_device}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_member_is_drained_and_weighed_while_packets_come() -> Result<()> {
    on_both(|mut scene| {
        let device = scene.device();
        let pid = scene.members[0].pid();
        scene.send(1000)?;
        let drained = printed(&format!("group {device} 5 --drain {pid}"))?;
        assert!(drained.contains("its 2048 buckets were given"), "{drained}");
        assert!(drained.contains("its ring is read"), "{drained}");
        scene.await_buckets([0, 4096])?;
        assert_eq!(scene.send(1000)?, [0, 1000]);
        let last = refused(&format!("group {device} 5 --drain slot:1"))?;
        assert!(
            last.contains("no other member would take its packets"),
            "{last}"
        );
        printed(&format!("group {device} 5 --drain {pid} --undo"))?;
        scene.await_buckets([2048, 2048])?;
        printed(&format!("group {device} 5 --weigh slot:0=3"))?;
        let told = scene.await_buckets([3072, 1024])?;
        assert_eq!(told["slots"][0]["weight"], 3);
        let shares = scene.send(4000)?;
        assert!(shares[0] > shares[1] && shares[1] > 0, "{shares:?}");
        assert_eq!(
            scene.group()?["ledger"]["offered_packets_total"],
            scene.sent
        );
        Ok(())
    })
}

/// The last packets of a member that was killed are read by another, and its account stays.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_account_of_a_killed_member_is_kept() -> Result<()> {
    on_both(|mut scene| {
        scene.send(1000)?;
        let killed = scene.members.remove(0);
        let own = killed.captured() as u64;
        killed.signal("STOP")?;
        let frames = traffic::frames(7, &traffic::flows(7, 200), 1000..2000)?;
        scene.injector.send_all(&frames)?;
        await_for("the frames at the poller", LIMIT, || {
            let told = scene.group()?;
            Ok((told["ledger"]["offered_packets_total"] == 2000).then_some(()))
        })?;
        killed.signal("KILL")?;
        let gone = await_for("the killed member's account", LIMIT, || {
            let told = scene.group()?;
            Ok((told["gone"]["members_total"] == 1).then(|| told["gone"].clone()))
        })?;
        let of = |name: &str| gone[name].as_u64().unwrap_or(u64::MAX);
        let all = of("received_packets_total");
        assert_eq!(of("taken_packets_total"), own, "{gone}");
        assert_eq!(of("inherited_packets_total"), all - own, "{gone}");
        assert_eq!(of("unread_packets_total"), 0, "{gone}");
        let rest = scene.members[0].captured() as u64;
        assert_eq!(rest + own, 2000);
        Ok(())
    })
}

/// The JSON of a command, which nobody runs if `is_nobody`, with packets of the device from the
/// poller.
fn told(arguments: &str, is_nobody: bool) -> Result<Value> {
    let scratch = Scratch::new()?;
    let mut command = Command::new(COMMAND);
    if is_nobody {
        // The source tree may be where only root can read it.
        let copy = scratch.file("fanpcap");
        fs::copy(COMMAND, &copy)?;
        fs::set_permissions(scratch.file(""), Permissions::from_mode(0o755))?;
        command = Command::new(copy);
        command.uid(NOBODY).gid(NOBODY);
    }
    command.args(arguments.split_whitespace()).arg("--json");
    command
        .env("PCAP_DRIVER", "packet")
        .env("PCAP_CONFIG", "/dev/null");
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).context(said)
}

const NOBODY: u32 = 65_534;

/// The doctor's finding about the poller.
fn finding() -> Result<Option<Value>> {
    let told = told(&format!("doctor {FAR}"), false)?;
    let findings = told["findings"].as_array().context("findings")?;
    Ok(findings
        .iter()
        .find(|it| it["name"] == "no-poller")
        .cloned())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn doctor_and_config_say_whether_the_poller_can_be_used() -> Result<()> {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let absent = refused(&format!("group packet:{FAR}"))?;
        let expected =
            format!("no poller serves packet:{FAR}: start one: fanpcap poller packet:{FAR}");
        assert!(absent.contains(&expected), "{absent}");
        let found = finding()?.context("a finding")?;
        assert_eq!(
            (&found["effect"], &found["what"]),
            (&"refuses".into(), &expected.clone().into())
        );
        assert_eq!(
            found["fix"],
            format!("fanpcap poller packet:{FAR}    # as root")
        );
        let config = |is_nobody| -> Result<Value> {
            Ok(told(&format!("config {FAR}"), is_nobody)?["devices"][0].clone())
        };
        assert_eq!(config(false)?["poller_problem"], expected);
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        assert_eq!(finding()?, None);
        let device = config(false)?;
        assert_eq!(
            (&device["poller_pid"], &device["poller_problem"]),
            (&poller.id().into(), &Value::Null)
        );
        let denied = config(true)?["poller_problem"].to_string();
        assert!(
            denied.contains("this user may not use the poller"),
            "{denied}"
        );
        let none = refused(&format!("group packet:{FAR} 5"))?;
        assert!(none.contains("no group 5 on"), "{none}");
        poller.end()?;
        Ok(())
    })
}

/// A user sees its own groups alone. Root sees and changes those of all users.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn users_see_their_own_groups_and_root_sees_all() -> Result<()> {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let _poller = Poller::start(&format!("packet:{FAR} --socket-group {NOBODY}"), 1)?;
        let _roots = running::Member::enter("packet")?;
        if !needs::user_namespaces() {
            return Ok(());
        }
        let scratch = Scratch::new()?;
        let words = "--reuid=65534 --regid=65534 --clear-groups --no-new-privs tcpdump -n -i";
        let program = Program::new("setpriv", "listening on")?.args(words.split(' '));
        let program = program.arg(format!("packet:{FAR}")).group(5, "flow");
        let member = program.start(&scratch)?;
        let name = format!("packet:{FAR}/{NOBODY}");
        let list = await_for("the group of nobody", LIMIT, || {
            let list = printed("group")?;
            Ok(list.contains(&format!("{name} ")).then_some(list))
        })?;
        assert!(list.contains(&format!("packet:{FAR} ")), "{list}");
        printed(&format!("group {name} 5 --weigh {}=7", member.pid()))?;
        let of_nobody = told(&format!("group packet:{FAR}"), true)?;
        assert_eq!(of_nobody["device"], format!("packet:{FAR}"));
        let slots = of_nobody["slots"].as_array().context("slots")?;
        assert_eq!((slots.len(), &slots[0]["weight"]), (1, &7.into()));
        assert_eq!(slots[0]["pid"], member.pid());
        Ok(())
    })
}
