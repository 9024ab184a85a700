//! Copies that are in no group and so get all packets, handles that no application reads, and
//! groups that copies can't join.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Capture, Scratch, library, member, mounts};

use crate::captures::{frames, on_wire};
use crate::{FAR, GROUP, NEAR, Running};

fn compiled(scratch: &Scratch, name: &str) -> Result<String> {
    let program = scratch.file(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/run/c/{name}.c"));
    library::compile_c(&source, &program)?;
    Ok(program.to_str().context("a path")?.to_owned())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_sees_all_packets_ends_the_run_unless_that_is_allowed() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let outsider = compiled(&scratch, "outsider")?;
        let group = GROUP.to_string();
        let options = ["-n", "2", "--group", &group, "--cpus", "none"];
        let ended = Running::start(&options, &[&outsider])?.wait()?;
        ensure!(ended.status.code() == Some(1), "{}", ended.status);
        let told = format!(
            "did not join and sees ALL packets: {outsider} reads a packet socket of its own"
        );
        for part in [&told, "--allow-outsiders lets the copy continue"] {
            ensure!(ended.said().contains(part), "{}", ended.said());
        }
        let options = [&options[..], &["--allow-outsiders"]].concat();
        let running = Running::start(&options, &[&outsider])?;
        running.wait_until_says(&told, 2)?;
        std::thread::sleep(Duration::from_millis(1500));
        running.signal("TERM")?;
        ensure!(running.wait()?.status.code() == Some(143), "it went on");
        Ok(())
    })
    .unwrap();
}

/// On XDP, a handle without a group is the only member of a group of its own, so each copy gets all
/// packets. Copies with raised privileges have such handles if /etc/pcap.conf sets the engine for
/// the device but no group.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn copies_on_xdp_that_each_see_all_packets_end_the_run() {
    on_wire(|_| {
        let group = GROUP.to_string();
        let copy = |own: &'static str| {
            let line = format!(
                "unset PCAP_FANOUT; {own}; export PCAP_DRIVER=xdp; \
                 exec tcpdump -n -U -Z root -i {FAR} -w $0.pcap"
            );
            ["sh".to_owned(), "-c".to_owned(), line, "%i".to_owned()]
        };
        let start = |own| {
            let line = copy(own);
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            Running::start(&["-n", "2", "--group", &group, "--cpus", "none"], &line)
        };
        let ended = start("unset PCAP_GROUP")?.wait()?;
        ensure!(ended.status.code() == Some(1), "{}", ended.said());
        for part in [
            "did not join and sees ALL packets, in group ",
            "--allow-outsiders lets the copy continue",
        ] {
            ensure!(ended.said().contains(part), "{}", ended.said());
        }
        // The command does not end if two copies share another group.
        let running = start("export PCAP_GROUP=4")?;
        running.wait_until_says("has not joined the group", 2)?;
        member::wait_for_members(4, 2)?;
        std::thread::sleep(Duration::from_millis(2500));
        running.signal("TERM")?;
        let ended = running.wait()?;
        let is_said = |text| ended.said().contains(text);
        ensure!(!is_said("ALL packets"), "{}", ended.said());
        ensure!(is_said("no copy was ever in group"), "{}", ended.said());
        Ok(())
    })
    .unwrap();
}

/// arping, DHCP clients and programs that capture on another device have packet sockets that get
/// few packets. The command must not end because of such a socket.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_whose_packet_socket_gets_few_packets_may_go_on() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let outsider = compiled(&scratch, "outsider")?;
        let group = GROUP.to_string();
        let options = ["-n", "1", "--group", &group, "--cpus", "none"];
        let options = [&options[..], &["--device", FAR]].concat();
        for (protocol, device) in [("0x0806", FAR), ("0x0003", NEAR)] {
            let running = Running::start(&options, &[&outsider, protocol, device])?;
            // The command reports a copy outside the group only if two searches, a second apart,
            // have found it.
            running.wait_until_says("has not joined the group", 1)?;
            ensure!(
                !running.said().contains("ALL packets"),
                "{}",
                running.said()
            );
            running.signal("TERM")?;
            ensure!(
                running.wait()?.status.code() == Some(143),
                "{protocol} {device}"
            );
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_handle_that_nobody_reads_is_told() {
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let two_handles = compiled(&scratch, "two_handles")?;
        let group = GROUP.to_string();
        let options = ["-n", "1", "--group", &group, "--cpus", "none"];
        let running = Running::start(&options, &[&two_handles, FAR])?;
        running.wait_until_says("ready", 1)?;
        let frames = frames(50)?;
        await_for("a word of the unread handle", LIMIT, || {
            injector.send_all(&frames)?;
            let told = "(two_handles) has a handle that it has never read";
            Ok(running.said().contains(told).then_some(()))
        })
        .with_context(|| running.said())?;
        ensure!(
            running.said().matches("has never read").count() == 1,
            "{}",
            running.said()
        );
        running.signal("TERM")?;
        running.wait()?;
        Ok(())
    })
    .unwrap();
}

/// A newcomer gets its share when it first reads its handle. If it never reads, it gets no share,
/// so no packet is lost.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_never_looks_for_packets_is_said_to_have_no_share() {
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let idle = compiled(&scratch, "idle")?;
        let group = GROUP.to_string();
        let options = ["-n", "2", "--group", &group, "--cpus", "none"];
        let text = format!(
            "if [ $0 = 1 ]; then while [ ! -s 0.pcap ]; do sleep 0.1; done; sleep 1; exec {idle} {FAR}; fi; \
             exec tcpdump -n -U -Z root -i {FAR} -w 0.pcap"
        );
        let running = Running::start(&options, &["sh", "-c", &text, "%i"])?;
        running.wait_until_says("1: ready", 1)?;
        let frames = frames(50)?;
        await_for("a word of the unread handle", LIMIT, || {
            injector.send_all(&frames)?;
            let told = "(idle) has a handle that it has never read, but the handle has no share";
            Ok(running.said().contains(told).then_some(()))
        })
        .with_context(|| running.said())?;
        running.signal("TERM")?;
        let ended = running.wait()?;
        for (text, is_said) in [
            ("are lost", false),
            ("copy 1 never had a share of the group's packets", true),
            ("copy 0 never had a share", false),
        ] {
            ensure!(ended.said().contains(text) == is_said, "{}", ended.said());
        }
        Ok(())
    })
    .unwrap();
}

/// The copy has file capabilities, as dumpcap has for users of the group wireshark. Only root can
/// read the descriptors of such a process, so the command can't.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_with_file_capabilities_that_sees_all_packets_ends_the_run_of_its_user() {
    on_wire(|_| {
        let scratch = Scratch::new()?;
        let outsider = compiled(&scratch, "outsider")?;
        let set = Command::new("setcap")
            .args(["cap_net_raw=ep", &outsider])
            .status();
        if !set.is_ok_and(|set| set.success()) {
            println!("SKIP: no setcap here, or no file capabilities in {outsider}");
            return Ok(());
        }
        let user = "cp -a \"$FANPCAP_LIB_DIR\" lib && FANPCAP_LIB_DIR=$PWD/lib && cp \"$0\" own && \
            exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$PWD/own\" \"$@\"";
        let line = [
            "-n", "2", "--cpus", "none", "--device", FAR, "--", &outsider,
        ];
        let ended = Running::start_by(&["sh", "-c", user], &line, None)?.wait()?;
        ensure!(ended.status.code() == Some(1), "{}", ended.said());
        for part in [
            "did not join and sees ALL packets",
            "/etc/pcap.conf, and give --group",
        ] {
            ensure!(ended.said().contains(part), "{}", ended.said());
        }
        Ok(())
    })
    .unwrap();
}

/// A shell command that runs `fanpcap` as another user, in a separate mount namespace. In this
/// namespace, /etc/pcap.conf has the lines in the variable CONF, all programs load our library, and
/// bin/raised is a set-user-ID tcpdump.
const AS_USER: &str = "mkdir etc bin && mount -t tmpfs none etc && cp -a /etc/. etc && \
    mount --bind etc /etc && mount -t tmpfs none /var/cache/ldconfig && \
    mount -t tmpfs -o mode=755 none bin && cp -a \"$FANPCAP_LIB_DIR\" bin/lib && \
    FANPCAP_LIB_DIR=$PWD/bin/lib && \
    echo \"$FANPCAP_LIB_DIR\" >/etc/ld.so.conf.d/00-fanpcap.conf && ldconfig && \
    printf \"$CONF\" >/etc/pcap.conf && chmod 777 . && \
    cp \"$(command -v tcpdump)\" bin/raised && chmod u+s bin/raised && \
    cp \"$0\" bin/own && \
    exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$PWD/bin/own\" \"$@\"";

/// Set-user-ID copies ignore the environment, so they do not join the group. If the user applies
/// the remedy that the command prints, the copies must share the packets.
#[test]
#[ignore = "needs root: packet sockets in a namespace, mounts"]
fn raised_copies_on_xdp_that_each_see_all_packets_end_the_run_and_share_by_its_remedy() {
    let run = |group: &str| {
        let conf = format!("CONF=driver@{FAR} = xdp\\n{group}");
        let through = ["env", &conf, "unshare", "--mount", "sh", "-c", AS_USER];
        let number = GROUP.to_string();
        let options = ["-n", "2", "--group", &number, "--cpus", "none"];
        let tcpdump = ["bin/raised", "-n", "-U", "-Z", "nobody", "-i", FAR];
        let line = [
            &options[..],
            &["--device", FAR, "--"],
            &tcpdump,
            &["-w", "%i.pcap"],
        ]
        .concat();
        Running::start_by(&through, &line, None)
    };
    mounts::where_possible(|| {
        on_wire(|injector| {
            let ended = run("")?.wait()?;
            ensure!(ended.status.code() == Some(1), "{}", ended.said());
            let remedy = format!("'group_{FAR} = {GROUP}' into /etc/pcap.conf, and give --group");
            for part in ["did not join and sees ALL packets, in group ", &remedy] {
                ensure!(ended.said().contains(part), "{}", ended.said());
            }
            let begun = Instant::now();
            let running = run(&format!("group_{FAR} = {GROUP}\\n"))?;
            running.wait_until_says(
                &format!("in group {GROUP}, flow on xdp, on {FAR}: 2 copies"),
                1,
            )?;
            let was_late = begun.elapsed() >= EXAMINED_AFTER;
            // A copy that has joined gets its share only when it reads its handle, so the first
            // packets may all go to one copy.
            let mut sent = 0;
            await_for("both to have packets", LIMIT, || {
                injector.send_all(&frames(100)?)?;
                sent += 100;
                running.wait_for_packets(&["0.pcap", "1.pcap"], sent)?;
                let path = |copy: u8| running.scratch.file(&format!("{copy}.pcap"));
                let shares = [0, 1].map(|copy| Capture::count_so_far(&path(copy)));
                ensure!(shares[0] + shares[1] == sent, "{shares:?} of {sent}");
                Ok((!shares.contains(&0)).then_some(()))
            })?;
            running.signal("INT")?;
            let ended = running.wait()?;
            for wrong in ["ALL packets", "has not joined", "given up"] {
                let may_be_said = wrong == "has not joined" && was_late;
                let is_said = ended.said().contains(wrong);
                ensure!(!is_said || may_be_said, "{}", ended.said());
            }
            Ok(())
        })
    })
    .unwrap();
}

/// The age of a copy at which the command says that it has not joined. On a busy machine a copy may
/// need longer, and then the command says so before the copy joins.
const EXAMINED_AFTER: Duration = Duration::from_secs(3);

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn what_was_joined_is_said_and_a_group_of_another_mode_is_refused() {
    on_wire(|_| {
        let running = Running::tcpdumps(&["--fanout", "hash"], "%i.pcap")?;
        running.wait_until_says(&format!("in group {GROUP}, hash, on {FAR}: 2 copies"), 1)?;
        let group = GROUP.to_string();
        // Shell completion must offer the group's number.
        let mut complete = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
        let offered = complete.args(["complete", "--", "run", "--group", ""]);
        let offered = String::from_utf8(offered.output()?.stdout)?;
        ensure!(offered == format!("{group}\n"), "{offered:?}");
        for (mode, device, complaint) in [
            ("lb", FAR, "the group has hash already, not lb"),
            ("flow", FAR, "the group has hash already, not flow"),
            (
                "hash+defrag",
                FAR,
                "the group has hash already, not hash+defrag",
            ),
            ("hash", "lo", "the group is on run-b already"),
        ] {
            let options = ["--group", &group, "--fanout", mode, "--device", device];
            let ended = Running::start(&options, &["touch", "started"])?.wait()?;
            ensure!(ended.status.code() == Some(1), "{mode}: {}", ended.status);
            ensure!(ended.said().contains(complaint), "{}", ended.said());
            ensure!(
                !ended.scratch.file("started").exists(),
                "{mode}: it was started"
            );
        }
        running.stop()?;
        member::wait_for_members(GROUP, 0)
    })
    .unwrap();
}
