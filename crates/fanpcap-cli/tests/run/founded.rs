//! Groups that `fanpcap run` and `fanpcap serve` found for programs without CAP_BPF, such as
//! dumpcap and tshark.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::{GroupDir, MemberId};
use fanpcap_group::roster;
use fanpcap_linux::interface;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::Frame;
use fanpcap_testkit::{Capture, Scratch, Veth, library, member, mounts, needs, netns, veth};

use crate::captures::{frames, on_wire, wait_until_taken};
use crate::{FAR, GROUP, NEAR, Running};

const FRAMES: u64 = 2000;

/// dumpcap flushes its file when packets come, but at most every 500 ms.
const WRITTEN_AFTER: Duration = Duration::from_millis(600);

/// What the programs get besides their command line: no CAP_BPF.
pub(crate) const WITHOUT_BPF: [&str; 4] = [
    "setpriv",
    "--bounding-set=-bpf,-sys_admin",
    "--inh-caps=-bpf,-sys_admin",
    "--",
];

/// The programs, each with the arguments that make it write a pcap file to %i.pcap.
pub(crate) fn commands() -> [Vec<&'static str>; 3] {
    let dumpcap = ["dumpcap", "-q", "-P", "-i", FAR, "-w", "%i.pcap"];
    let tshark = ["tshark", "-q", "-F", "pcap", "-i", FAR, "-w", "%i.pcap"];
    let tcpdump = ["tcpdump", "-n", "-U", "-Z", "root", "-i", FAR];
    let tcpdump = [&WITHOUT_BPF[..], &tcpdump, &["-w", "%i.pcap"]].concat();
    [dumpcap.to_vec(), tshark.to_vec(), tcpdump]
}

/// The numbers of the packets in a copy's capture.
fn numbers(running: &Running, copy: usize) -> Result<Vec<u64>> {
    let capture = Capture::read(&running.scratch.file(&format!("{copy}.pcap")))?;
    let numbers = capture.packets.iter().map(|it| it.sequence);
    numbers.map(|it| it.context("a foreign packet")).collect()
}

/// The processes of the group's members.
pub(crate) fn pids() -> Result<Vec<u32>> {
    let seen = roster::entries()?.into_iter().filter(|it| it.is_in(GROUP));
    let pids = seen.filter_map(|it| it.page.map(|page| page.pid));
    Ok(pids.collect())
}

pub(crate) fn start(copies: &str, options: &[&str], command: &[&str]) -> Result<Running> {
    let group = GROUP.to_string();
    let all = [
        "-n", copies, "--group", &group, "--cpus", "none", "--device", FAR,
    ];
    let running = Running::start(&[&all[..], options].concat(), command)?;
    let told = format!("in group {GROUP}");
    running.wait_until_says(&format!("{copies} copies"), 2)?;
    running.wait_until_says(&told, 2)?;
    Ok(running)
}

/// Each flow stays at its member when another member is killed.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn programs_without_cap_bpf_are_members_under_flow() {
    if !needs::programs(&["dumpcap", "tshark"]) {
        return;
    }
    for command in commands() {
        on_wire(|injector| {
            let running = start("3", &[], &command)?;
            let captures = ["0.pcap", "1.pcap", "2.pcap"];
            let frames = frames(FRAMES)?;
            let mut sent = 0;
            // The last copy gets its share only when it reads its handle.
            let started = await_for("shares of all", LIMIT, || {
                injector.send_all(&frames)?;
                sent += frames.len();
                running.wait_for_packets(&captures, sent)?;
                let counts = [0, 1, 2].map(|copy| Ok(numbers(&running, copy)?.len()));
                let counts = counts.into_iter().collect::<Result<Vec<_>>>()?;
                Ok((!counts.contains(&0)).then_some(counts))
            })?;
            injector.send_all(&frames)?;
            sent += frames.len();
            running.wait_for_packets(&captures, sent)?;
            let before = [0, 1, 2].map(|copy| numbers(&running, copy));
            let members = pids()?;
            ensure!(members.len() == 3, "{members:?}");
            member::signal(members[1], "KILL")?;
            running.wait_until_says("the other copies continue", 1)?;
            injector.send_all(&frames)?;
            sent += frames.len();
            running.wait_for_packets(&captures, sent)?;
            running.signal("TERM")?;
            let scratch_of = |copy| numbers(&running, copy);
            let mut unchanged = 0;
            for (copy, before) in before.into_iter().enumerate() {
                let before = before?;
                let after = scratch_of(copy)?;
                let after: BTreeSet<&u64> =
                    after.get(before.len()..).unwrap_or(&[]).iter().collect();
                let before = before.get(started[copy]..).context("packets")?;
                unchanged += usize::from(before.iter().all(|it| after.contains(it)));
            }
            ensure!(unchanged == 2, "{unchanged} copies kept their flows");
            let ended = running.wait()?;
            let summary = ended.summary();
            ensure!(summary["mode"] == "flow", "{summary:#}");
            let of = |name: &str| summary["total"][name].as_u64();
            let taken = of("taken")
                .zip(of("inherited"))
                .map(|(own, more)| own + more);
            ensure!(taken == Some(sent as u64), "{summary:#}");
            Ok(())
        })
        .with_context(|| command.join(" "))
        .unwrap();
    }
}

/// The members can't load the filtering part of a steering program, so they attach the founder's.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_filtering_part_is_loaded_by_the_founder() {
    if !needs::programs(&["dumpcap"]) {
        return;
    }
    on_wire(|injector| {
        let program = "main = udp >-> inc 3 >-> steer_flow";
        let dumpcap = ["dumpcap", "-q", "-P", "-i", FAR, "-w", "%i.pcap"];
        let running = start("2", &["--fanout", program], &dumpcap)?;
        let frames = frames(FRAMES)?;
        injector.send_all(&frames)?;
        let is_udp = |it: &&Frame| it.bytes.get(23) == Some(&17) || it.bytes.get(20) == Some(&17);
        let udp = frames.iter().filter(is_udp).count();
        ensure!(udp > 0 && udp < frames.len(), "{udp} of {}", frames.len());
        running.wait_for_packets(&["0.pcap", "1.pcap"], udp)?;
        running.signal("TERM")?;
        let ended = running.wait()?;
        ensure!(ended.summary()["total"]["taken"] == udp, "{}", ended.said());
        Ok(())
    })
    .unwrap();
}

/// A member that is started by itself joins the group that `fanpcap serve` keeps, also after the
/// last member has died.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_served_group_waits_for_members_without_cap_bpf() {
    if !needs::programs(&["dumpcap"]) {
        return;
    }
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let served = serve(&scratch, &[OWN], &[])?;
        let frames = frames(FRAMES)?;
        for round in 0..2 {
            let files = [0, 1].map(|copy| scratch.file(&format!("{round}-{copy}.pcap")));
            let members = files.each_ref().map(|file| dumpcap(file));
            member::wait_for_members(GROUP, 2)?;
            // A member gets its share only when it reads its handle.
            let mut sent = 0;
            let counts = || files.each_ref().map(|it| Capture::count_so_far(it));
            await_for("shares of both", LIMIT, || {
                injector.send_all(&frames)?;
                sent += frames.len();
                thread::sleep(WRITTEN_AFTER);
                Ok((!counts().contains(&0)).then_some(()))
            })?;
            let members = members.into_iter().collect::<Result<Vec<_>>>()?;
            if round == 1 {
                // A member that ends leaves the packets in its ring unread.
                wait_until_taken(sent as u64)?;
                for member in &members {
                    member::signal(member.0.id(), "INT")?;
                }
                await_for("each packet once", LIMIT, || {
                    Ok((counts().iter().sum::<usize>() == sent).then_some(()))
                })?;
            }
            // The members die at the same moment, and their sockets go with the founder's help.
            drop(members);
            await_for("an empty group", LIMIT, || {
                let seen = roster::entries()?;
                Ok((!seen.iter().any(|it| it.is_in(GROUP))).then_some(()))
            })?;
        }
        member::signal(served.0.id(), "TERM")
    })
    .unwrap();
}

/// A newcomer without CAP_BPF asks for another steering program than the founder's.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_newcomer_that_cannot_begin_the_group_leaves_its_founder() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let mut served = serve(&scratch, &[OWN], &[])?;
        let through = [&["timeout", "20"], &WITHOUT_BPF[..]].concat();
        let other = tcpdump(&scratch.file("other.pcap"), &through)?
            .env("PCAP_FANOUT", "flow+sticky")
            .output()?;
        let said = String::from_utf8_lossy(&other.stderr).into_owned();
        ensure!(said.contains("was founded with 'flow'"), "{said}");
        let member = Ending(tcpdump(&scratch.file("own.pcap"), &WITHOUT_BPF)?.spawn()?);
        member::wait_for_members(GROUP, 1)?;
        ensure!(served.0.try_wait()?.is_none(), "the founder has ended");
        drop(member);
        // One that has CAP_BPF begins the group, and the founder ends.
        let mut other = tcpdump(&scratch.file("other.pcap"), &[])?;
        let _other = Ending(other.env("PCAP_FANOUT", "flow+sticky").spawn()?);
        member::wait_for_members(GROUP, 1)?;
        await_for("the founder's end", LIMIT, || Ok(served.0.try_wait()?))?;
        Ok(())
    })
    .unwrap();
}

/// The kernel's group is empty only when the last process has closed a member's socket, and then it
/// has lost its steering program.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_group_whose_sockets_were_held_elsewhere_gets_its_program_again() {
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let _served = serve(&scratch, &[OWN], &[])?;
        let first = Ending(tcpdump(&scratch.file("first.pcap"), &WITHOUT_BPF)?.spawn()?);
        member::wait_for_members(GROUP, 1)?;
        let mut seen = roster::entries()?.into_iter();
        let seen = seen.find(|it| it.is_in(GROUP)).context("no member")?;
        let process = Process::open(first.0.id())?;
        let held = process.socket(first.0.id(), seen.socket.inode.into())?;
        drop(first);
        // Longer than the founder waits for the socket's end.
        thread::sleep(Duration::from_secs(3));
        drop(held);
        let files = [0, 1].map(|copy| scratch.file(&format!("{copy}.pcap")));
        let start = |file: &PathBuf| Ok(Ending(tcpdump(file, &WITHOUT_BPF)?.spawn()?));
        let _members = files.iter().map(start).collect::<Result<Vec<_>>>()?;
        member::wait_for_members(GROUP, 2)?;
        let frames = frames(FRAMES)?;
        await_for("shares of both", LIMIT, || {
            injector.send_all(&frames)?;
            thread::sleep(WRITTEN_AFTER);
            let counts = files.each_ref().map(|it| Capture::count_so_far(it));
            Ok((!counts.contains(&0)).then_some(()))
        })
    })
    .unwrap();
}

/// Root's members would have another table in the same group of the kernel.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn roots_members_stay_out_of_a_group_that_is_served_for_a_user() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let index = interface::index(FAR).context("no device")?;
        let given = GroupDir::of(index, GROUP)?.give((65_534, 65_534))?;
        let refused = tcpdump(&scratch.file("0.pcap"), &["timeout", "20"])?.output()?;
        let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
        let expected = format!("group {GROUP} on {FAR} is served for user 65534");
        ensure!(refused.contains(&expected), "{refused}");
        // Nobody uses the directory any more.
        drop(given);
        let _member = Ending(tcpdump(&scratch.file("0.pcap"), &[])?.spawn()?);
        member::wait_for_members(GROUP, 1)
    })
    .unwrap();
}

/// Members of such a group need no founder, and a founder's members could not join them.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_group_in_a_mode_of_the_kernels_own_is_not_served() -> Result<()> {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let mut member = tcpdump(&scratch.file("all.pcap"), &[])?;
        let _member = Ending(member.env("PCAP_FANOUT", "hash").spawn()?);
        member::wait_for_members(GROUP, 1)?;
        for (device, complaint) in [(FAR, "in mode hash"), (NEAR, "is on device")] {
            let mut serve = Command::new(OWN);
            let place = format!("{GROUP}@{device}");
            let ended = serve.args(["serve", &place]).output()?;
            let said = String::from_utf8_lossy(&ended.stderr);
            ensure!(
                !ended.status.success() && said.contains(complaint),
                "{said}"
            );
        }
        Ok(())
    })
}

/// A unit starts `fanpcap serve --user` again, with the capabilities that fanpcap-serve@.service
/// names. The first run leaves its page, and the user a directory.
#[test]
#[ignore = "needs root: packet sockets in a namespace, setpriv"]
fn a_unit_serves_a_user_again() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        // The user runs a copy: the user may not enter the directory of this build.
        let own = scratch.file("fanpcap");
        fs::copy(OWN, &own)?;
        fs::set_permissions(scratch.file(""), fs::Permissions::from_mode(0o755))?;
        let own = own.to_string_lossy().into_owned();
        let bounds = "--bounding-set=-all,+net_raw,+bpf,+setuid,+setgid,+chown";
        let command = ["setpriv", bounds, "--", &own];
        let index = interface::index(FAR).context("no device")?;
        let page = GroupDir::of(index, GROUP)?.page(1, MemberId::of_socket(1));
        let pages = page.parent().context("no parent")?;
        for round in 0..2 {
            let _served = serve(&scratch, &command, &["--user", "nobody"])
                .with_context(|| format!("round {round}"))?;
            ensure!(fs::metadata(pages)?.uid() == 65_534, "{pages:?}");
            fs::create_dir(pages.join("mine"))?;
        }
        Ok(())
    })
    .unwrap();
}

/// The device comes back with another index, so the group begins again.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_group_is_founded_again_when_its_device_comes_back() {
    if !needs::programs(&["dumpcap"]) {
        return;
    }
    netns::within_new(|| {
        Veth::new(NEAR, FAR, 1)?;
        let dumpcap = ["dumpcap", "-q", "-P", "-i", FAR, "-w", "%i.pcap"];
        let running = start("2", &["--restart"], &dumpcap)?;
        veth::ip(&format!("link delete {NEAR}"))?;
        running.wait_until_says("because a device is gone", 2)?;
        Veth::new(NEAR, FAR, 1)?;
        await_for("members under flow", LIMIT, || {
            let seen = roster::entries()?.into_iter().filter(|it| it.is_in(GROUP));
            let modes: Vec<String> = seen
                .filter_map(|it| it.page.map(|page| page.shown_mode()))
                .collect();
            Ok((modes == ["flow", "flow"]).then_some(()))
        })
        .with_context(|| running.said())?;
        running.signal("TERM")?;
        running.wait()?;
        Ok(())
    })
    .unwrap();
}

/// A process that is killed when this value is dropped.
pub(crate) struct Ending(pub(crate) Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) const OWN: &str = env!("CARGO_BIN_EXE_fanpcap");

/// Starts `COMMAND serve`, where the command ends with the program, and waits until it has founded
/// the group.
pub(crate) fn serve(scratch: &Scratch, command: &[&str], options: &[&str]) -> Result<Ending> {
    let mut serve = Command::new(command[0]);
    serve.args(&command[1..]);
    serve.arg("serve").arg(format!("{GROUP}@{FAR}"));
    serve
        .args(options)
        .env("PCAP_CONFIG", "/dev/null")
        .stderr(File::create(scratch.file("served"))?);
    let served = Ending(serve.spawn()?);
    await_for("the group", LIMIT, || {
        let told = fs::read_to_string(scratch.file("served"))?;
        Ok(told.contains("waits for members").then_some(()))
    })
    .with_context(|| fs::read_to_string(scratch.file("served")).unwrap_or_default())?;
    Ok(served)
}

/// A member of the group, started `through` another command.
pub(crate) fn tcpdump(file: &Path, through: &[&str]) -> Result<Command> {
    let tcpdump = ["tcpdump", "-n", "-U", "-Z", "root", "-i", FAR, "-w"];
    let words = [through, &tcpdump].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(file);
    command
        .env("LD_LIBRARY_PATH", library::library_dir()?)
        .env("PCAP_CONFIG", "/dev/null")
        .env("PCAP_GROUP", GROUP.to_string());
    Ok(command)
}

fn dumpcap(file: &Path) -> Result<Ending> {
    let mut command = Command::new("dumpcap");
    command.args(["-q", "-P", "-i", FAR, "-w"]).arg(file);
    command.env("LD_LIBRARY_PATH", library::library_dir()?);
    command
        .env("PCAP_CONFIG", "/dev/null")
        .env("PCAP_GROUP", GROUP.to_string());
    command.stderr(Stdio::null());
    Ok(Ending(command.spawn()?))
}

/// A shell command that founds the group for user nobody, and runs `fanpcap` as that user, in a
/// separate mount namespace. There /etc/pcap.conf has the group, all programs load our library, and
/// bin/dumpcap has file capabilities, as Debian's has for the users of the group wireshark.
const SERVED: &str = "mkdir etc bin && mount -t tmpfs none etc && cp -a /etc/. etc && \
    mount --bind etc /etc && mount -t tmpfs none /var/cache/ldconfig && \
    mount -t tmpfs -o mode=755 none bin && cp -a \"$FANPCAP_LIB_DIR\" bin/lib && \
    export FANPCAP_LIB_DIR=$PWD/bin/lib && \
    echo \"$FANPCAP_LIB_DIR\" >/etc/ld.so.conf.d/00-fanpcap.conf && ldconfig && \
    echo \"group_$DEV = $GROUP\" >/etc/pcap.conf && chmod 777 . && cp \"$0\" bin/own && \
    cp \"$(command -v dumpcap)\" bin/dumpcap && \
    setcap cap_net_raw,cap_net_admin=eip bin/dumpcap && \
    { bin/own serve $GROUP@$DEV --user nobody 2>served & } && \
    until grep -q 'waits for members' served; do sleep 0.1; done; \
    setpriv --reuid=65534 --regid=65534 --clear-groups \"$PWD/bin/own\" \"$@\"; \
    code=$?; kill $!; exit $code";

/// The user may not load BPF programs, and may neither trace dumpcap nor change its environment.
#[test]
#[ignore = "needs root: packet sockets in a namespace, mounts"]
fn a_user_without_privileges_runs_copies_with_file_capabilities() {
    if !needs::programs(&["dumpcap", "setcap", "pkill"]) {
        return;
    }
    let (device, number) = (format!("DEV={FAR}"), GROUP.to_string());
    let group = format!("GROUP={number}");
    let through = [
        "env", &device, &group, "unshare", "--mount", "sh", "-c", SERVED,
    ];
    let options = ["-n", "2", "--group", &number, "--cpus", "none"];
    let dumpcap = ["bin/dumpcap", "-q", "-P", "-i", FAR, "-w", "%i.pcap"];
    let summary = ["--device", FAR, "--json", "summary.json", "--"];
    let line = [&options[..], &summary, &dumpcap].concat();
    mounts::where_possible(|| {
        on_wire(|injector| {
            let running = Running::start_by(&through, &line, None)?;
            running.wait_until_says(&format!("in group {GROUP}, flow, on {FAR}: 2 copies"), 1)?;
            let frames = frames(FRAMES)?;
            injector.send_all(&frames)?;
            running.wait_for_packets(&["0.pcap", "1.pcap"], frames.len())?;
            // The user's files are in the namespace's directory of pages, which root made.
            let dumpcaps = Command::new("pkill")
                .args(["-KILL", "-u", "65534", "-x", "dumpcap"])
                .status()?;
            ensure!(dumpcaps.success(), "no dumpcap is killed");
            let ended = running.wait()?;
            let summary = ended.summary();
            ensure!(summary["total"]["taken"] == FRAMES, "{summary:#}");
            ensure!(summary["total"]["uncounted_at_most"] == 0, "{summary:#}");
            ensure!(!ended.said().contains("unknown"), "{}", ended.said());
            Ok(())
        })
    })
    .unwrap();
}
