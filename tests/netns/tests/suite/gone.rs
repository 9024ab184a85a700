//! A device that is removed: all packets that came before are delivered, and then the error.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag;
use fanpcap_linux::packet::{self, Address, PacketFanout, Refusal};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, ensure_each_once, finish, on_wire, wait_for_shares};
use fanpcap_testkit::await_for::{LIMIT, within};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Capture, Injector, Member, Program, Veth, await_for, veth};

const WAYS: [&str; 7] = [
    "fileno-poll",
    "fileno-select",
    "fileno-epoll",
    "fileno-edge",
    "fd-poll",
    "fd-epoll",
    "blind",
];

const FRAMES: u64 = 20;

/// Starts tcpdump, with its time-out of one second, and handles that wait in each of [`WAYS`]. Each
/// handle gets all packets. With a `group`, each handle is in a group of its own.
fn start(wire: &Wire, engine: &str, group: Option<u16>) -> Result<Vec<(String, Member)>> {
    let waits = wire.compile("waits")?;
    let mut members = Vec::new();
    for (number, way) in (0_u16..).zip(["tcpdump"].into_iter().chain(WAYS)) {
        let name = format!("{way} on {engine}, group {group:?}");
        let file = wire.scratch.file(&format!("{}.pcap", members.len()));
        let program = match way {
            "tcpdump" => Program::tcpdump(DEVICE, file)?,
            way => Program::new(&waits, "ready")?
                .arg(DEVICE)
                .arg(file)
                .arg(way),
        };
        let program = program.set("PCAP_DRIVER", engine);
        let program = match group {
            Some(group) => program.set("PCAP_GROUP", (group + number).to_string()),
            None => program,
        };
        let member = program.start(&wire.scratch);
        members.push((name.clone(), member.context(name)?));
    }
    Ok(members)
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_in_the_ring_are_delivered_before_the_error() -> Result<()> {
    for engine in ["tpacket", "xdp"] {
        for group in [None, Some(7)] {
            on_wire(1, |wire| {
                let members = start(wire, engine, group)?;
                thread::sleep(Duration::from_millis(500));
                wire.send_as_tap(&traffic::frames(1, &traffic::flows(1, 5), 0..FRAMES)?)?;
                veth::ip(&format!("link delete {FAR_DEVICE}"))?;
                for (number, (name, member)) in members.into_iter().enumerate() {
                    let ended = member.wait().with_context(|| name.clone())?;
                    let said = ended.said.contains("The interface disappeared");
                    ensure!(said, "{name}: {}", ended.said);
                    let file = wire.scratch.file(&format!("{number}.pcap"));
                    let count = Capture::count_so_far(&file);
                    ensure!(count as u64 == FRAMES, "{name}: {count}, {}", ended.said);
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// The time from the device's return until a member has captured a packet again. The kernel may
/// need a third of a second for the rings of the XDP engine.
const BACK_WITHIN: Duration = Duration::from_secs(1);

/// Two members, or one without a group, that wait when their device is gone.
struct Waiting {
    name: String,
    members: Vec<Member>,
}

impl Waiting {
    fn start(wire: &Wire, engine: &str, group: Option<&str>, way: &str) -> Result<Self> {
        let name = format!("{way} on {engine}, group {group:?}");
        let waits = wire.compile("waits")?;
        let mut members = Vec::new();
        for copy in 0..if group.is_some() { 2 } else { 1 } {
            let file = wire.scratch.file(&format!("{copy}.pcap"));
            let program = match way {
                "tcpdump" => Program::tcpdump(DEVICE, file)?.arg("--immediate-mode"),
                way => Program::new(&waits, "ready")?
                    .arg(DEVICE)
                    .arg(file)
                    .arg(way),
            };
            let program = program.set("PCAP_DRIVER", engine).set("PCAP_GONE", "wait");
            let program = match group {
                Some(mode) => program.group(7, mode),
                None => program,
            };
            let member = program.start(&wire.scratch);
            members.push(member.with_context(|| name.clone())?);
        }
        thread::sleep(Duration::from_millis(700));
        Ok(Self { name, members })
    }

    fn captured(&self, wire: &Wire) -> usize {
        let files = (0..self.members.len()).map(|copy| wire.scratch.file(&format!("{copy}.pcap")));
        files.map(|file| Capture::count_so_far(&file)).sum()
    }

    fn await_captured(&self, wire: &Wire, packets: usize) -> Result<()> {
        let has = || Ok((self.captured(wire) >= packets).then_some(()));
        await_for("the packets", LIMIT, has)
            .with_context(|| format!("{}: {} of {packets}", self.name, self.captured(wire)))
    }

    /// Waits until no member is in a group, and none has descriptors of BPF objects.
    fn await_away(&self) -> Result<()> {
        let mut last = Ok(());
        let is_away = || {
            last = self.ensure_away();
            Ok(last.is_ok().then_some(()))
        };
        match await_for("all members to leave", LIMIT, is_away) {
            Ok(()) => Ok(()),
            Err(error) => last.context(error),
        }
    }

    fn ensure_away(&self) -> Result<()> {
        let (name, sockets) = (&self.name, diag::packet_sockets()?);
        let is_out = sockets.iter().all(|it| it.fanout.is_none());
        ensure!(is_out, "{name}: a socket is in a group: {sockets:?}");
        for member in &self.members {
            for fd in fs::read_dir(format!("/proc/{}/fd", member.pid()))? {
                let open = fs::read_link(fd?.path())?;
                let is_bpf = open.to_string_lossy().contains("bpf");
                ensure!(!is_bpf, "{name}: {}", open.display());
            }
        }
        Ok(())
    }

    /// Ticks of CPU time that the members have used.
    fn ticks(&self) -> Result<u64> {
        let mut sum = 0;
        for member in &self.members {
            let stat = fs::read_to_string(format!("/proc/{}/stat", member.pid()))?;
            let fields = stat
                .rsplit_once(')')
                .context("a name")?
                .1
                .split_whitespace();
            let times = fields.skip(11).take(2).map(str::parse::<u64>);
            sum += times.sum::<Result<u64, _>>()?;
        }
        Ok(sum)
    }
}

fn comes_back(wire: &Wire, engine: &str, group: Option<&str>, way: &str) -> Result<()> {
    let waiting = Waiting::start(wire, engine, group, way)?;
    let (count, name) = (usize::try_from(FRAMES)?, &waiting.name);
    let frames = |from: u64| traffic::frames(1, &traffic::flows(1, 20), from..from + FRAMES);
    wire.send_as_tap(&frames(0)?)?;
    for round in 1..=2 {
        waiting.await_captured(wire, count)?;
        let all = waiting.captured(wire);
        veth::ip(&format!("link delete {FAR_DEVICE}"))?;
        thread::sleep(Duration::from_millis(300));
        waiting.await_away()?;
        let before = waiting.ticks()?;
        thread::sleep(Duration::from_millis(700));
        let used = waiting.ticks()? - before;
        ensure!(used <= 5, "{name}: {used} ticks while the device is away");
        Veth::new(FAR_DEVICE, DEVICE, 1)?;
        let (back, limit) = (std::time::Instant::now(), within(BACK_WITHIN));
        let injector = Injector::open(FAR_DEVICE)?;
        let probe: Vec<Frame> = frames(round * 1000)?;
        await_for("a packet after the return", LIMIT, || {
            injector.send_all(&probe[..1])?;
            thread::sleep(Duration::from_millis(5));
            Ok((waiting.captured(wire) > all).then_some(()))
        })
        .with_context(|| name.clone())?;
        let took = back.elapsed();
        ensure!(took < limit, "{name}: {took:?} of {limit:?}");
        // All members are back when a packet of each flow is captured once.
        thread::sleep(Duration::from_millis(700));
        let all = waiting.captured(wire);
        injector.send_all(&frames(round * 2000)?)?;
        waiting.await_captured(wire, all + count)?;
        thread::sleep(Duration::from_millis(100));
        let more = waiting.captured(wire) - all;
        ensure!(more == count, "{name}: {more} of {count}");
    }
    for member in waiting.members {
        member.stop().with_context(|| name.clone())?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn handles_that_wait_capture_again_when_their_device_is_back() -> Result<()> {
    for (engine, other) in [("tpacket", "hash"), ("xdp", "lb")] {
        for (group, way) in [
            (None, "tcpdump"),
            (None, "fd-poll"),
            (Some("flow"), "tcpdump"),
            (Some("flow"), "fd-epoll"),
            (Some("flow"), "blind"),
            (Some(other), "tcpdump"),
        ] {
            on_wire(1, |wire| comes_back(wire, engine, group, way))?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_of_another_link_type_is_not_read() -> Result<()> {
    for (engine, group) in [
        ("tpacket", None),
        ("tpacket", Some("flow")),
        ("xdp", Some("flow")),
    ] {
        on_wire(1, |wire| {
            if !fs::exists("/dev/net/tun")? {
                println!("SKIP: this machine has no /dev/net/tun");
                return Ok(());
            }
            let waiting = Waiting::start(wire, engine, group, "tcpdump")?;
            veth::ip(&format!("link delete {FAR_DEVICE}"))?;
            veth::ip(&format!("tuntap add dev {DEVICE} mode tun"))?;
            veth::ip(&format!("link set {DEVICE} up"))?;
            for member in waiting.members {
                let said = member.wait().context(waiting.name.clone())?.said;
                let expected = format!("{DEVICE} came back with another link type: open it again");
                ensure!(said.contains(&expected), "{}: {said}", waiting.name);
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn an_application_that_has_given_up_its_privileges_can_not_wait() -> Result<()> {
    let long = "d".repeat(200);
    for directory in [None, Some(""), Some(long.as_str())] {
        on_wire(1, |wire| {
            let program = Program::new("tcpdump", "listening on")?
                .args(["-n", "-Z", "nobody", "-i", DEVICE, "-w"])
                .arg(wire.scratch.new_file("capture"));
            let (program, origin) = match directory {
                None => (
                    program.set("PCAP_GONE", "wait"),
                    "PCAP_GONE=wait".to_owned(),
                ),
                Some(name) => {
                    let directory = wire.scratch.file(name);
                    fs::create_dir_all(&directory)?;
                    let config = directory.join("gone.conf");
                    fs::write(&config, format!("# how\ngone@{DEVICE} = wait\n"))?;
                    let config = config.display().to_string();
                    (program.set("PCAP_CONFIG", &config), format!("{config}:2"))
                }
            };
            // A long path is shortened, so that the advice is whole.
            let origin = match origin.len() > 200 {
                true => format!("{}...{}/gone.conf:2", &origin[..9], "d".repeat(7)),
                false => origin,
            };
            let member = program.start(&wire.scratch)?;
            veth::ip(&format!("link delete {FAR_DEVICE}"))?;
            let said = member.wait()?.said;
            let expected = format!(
                "The interface disappeared; waiting for it ({origin}) needs CAP_NET_RAW \
                 (tcpdump: -Z root)\n"
            );
            ensure!(said.contains(&expected), "{said}");
            Ok(())
        })?;
    }
    Ok(())
}

/// The wire's devices are gone, and others have their names. The kernel knows a group's device by
/// its address in memory only, and would take a device at the address of the one that is gone for
/// that one. So the others are there before the first are gone.
fn replace_devices() -> Result<()> {
    let others = [("va.new", FAR_DEVICE), ("vb.new", DEVICE)];
    Veth::new(others[0].0, others[1].0, 1)?;
    veth::ip(&format!("link delete {FAR_DEVICE}"))?;
    for (other, name) in others {
        veth::ip(&format!("link set {other} down"))?;
        veth::ip(&format!("link set {other} name {name}"))?;
    }
    veth::ip(&format!("link set {FAR_DEVICE} up"))?;
    veth::ip(&format!("link set {DEVICE} up"))?;
    veth::await_up(DEVICE)
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_process_that_keeps_a_group_on_a_device_that_is_gone_is_named() -> Result<()> {
    for mode in ["hash", "flow"] {
        on_wire(1, |wire| {
            let waiting = Waiting::start(wire, "tpacket", Some(mode), "tcpdump")?;
            waiting.members[0].signal("STOP")?;
            replace_devices()?;
            let newcomer = Program::tcpdump(DEVICE, wire.scratch.new_file("capture"))?;
            let ended = newcomer.group(7, mode).run(&wire.scratch)?;
            let expected = format!(
                "fan-out group 7 is on a device that is gone, because process {} (tcpdump) still \
                 has a handle in it",
                waiting.members[0].pid(),
            );
            let said = ended.said.replace('\n', " ");
            ensure!(said.contains(&expected), "{mode}: {said}");
            waiting.members[0].signal("CONT")
        })?;
    }
    Ok(())
}

/// How often to replace the wire's devices. About one time in ten, the new device is at the address
/// of the one that is gone.
const DEVICES: usize = 100;

/// Replaces the wire's devices until the kernel takes the new one for that of a group that a socket
/// keeps, and returns this socket. `None` if no new device is at the address of the one that is
/// gone.
fn keep_group_at_the_address(mode: u8) -> Result<Option<OwnedFd>> {
    let join = || {
        let socket = packet::open()?;
        let ifindex = interface::index(DEVICE).context("no device")?;
        let protocol = packet::ETH_P_ALL;
        packet::bind(socket.as_fd(), Address { ifindex, protocol })?;
        let fanout = PacketFanout {
            id: 7,
            mode,
            flags: 0,
        };
        match packet::join(socket.as_fd(), fanout) {
            Ok(()) => Ok(Some(socket)),
            Err(Refusal::Conflict(_)) => Ok(None),
            Err(refusal) => bail!("{refusal:?}"),
        }
    };
    for _ in 0..DEVICES {
        // A process that another test starts may have the socket before until it runs its program.
        let keeps = await_for("the end of the group before", LIMIT, join)?;
        veth::ip(&format!("link delete {FAR_DEVICE}"))?;
        Veth::new(FAR_DEVICE, DEVICE, 1)?;
        if join()?.is_some() {
            return Ok(Some(keeps));
        }
    }
    Ok(None)
}

/// The kernel lets a newcomer into the group, although a process keeps the group on a device that
/// is gone. Then the newcomer must get the packets of the new device.
#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_on_a_device_at_the_address_of_the_one_that_is_gone_captures() -> Result<()> {
    // `PACKET_FANOUT_HASH` and `PACKET_FANOUT_EBPF`.
    for (mode, kind) in [("hash", 0), ("flow", 7)] {
        on_wire(1, |wire| {
            let Some(_keeps) = keep_group_at_the_address(kind)? else {
                println!("SKIP: none of {DEVICES} devices is at the address of the one before");
                return Ok(());
            };
            let start = || wire.tcpdump()?.group(7, mode).start(&wire.scratch);
            let newcomers = vec![start()?, start()?];
            wait_for_shares()?;
            let frames = traffic::frames(1, &traffic::flows(1, 20), 0..FRAMES)?;
            Injector::open(FAR_DEVICE)?.send_all(&frames)?;
            let captures = finish(newcomers, frames.len()).context(mode)?;
            ensure_each_once(&captures, &frames).context(mode)
        })?;
    }
    Ok(())
}
