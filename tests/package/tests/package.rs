//! The Debian package is installed in a clean Debian, works there, and is removed without a trace.

use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use fanpcap_package_tests::{Listing, Root, can_build, package, success, workspace};
use fanpcap_testkit::hosts::{DEVICE, Hosts};
use fanpcap_testkit::{Capture, FlowKey, Member, Program, await_for, capture};

const CONF: &str = "/etc/ld.so.conf.d/00-fanpcap.conf";
const LOCAL: &str = "/etc/apparmor.d/local/usr.bin.tcpdump";
/// Conversations of each kind. There are four kinds.
const EACH: usize = 8;

#[test]
fn the_package_is_the_same_when_it_is_built_again() -> Result<()> {
    if !can_build() {
        return Ok(());
    }
    let (path, before) = (package()?, fs::read(package()?)?);
    let mut make = Command::new("make");
    success(make.args(["-s", "deb"]).current_dir(workspace()))?;
    ensure!(fs::read(path)? == before, "two builds differ");
    Ok(())
}

#[test]
fn the_control_file_names_what_the_package_needs() -> Result<()> {
    if !can_build() {
        return Ok(());
    }
    let mut dpkg = Command::new("dpkg-deb");
    let control = success(dpkg.arg("--field").arg(package()?))?;
    for needed in ["libpcap0.8 (>= 1.10)", "libc6 (>= ", "libgcc-s1"] {
        ensure!(control.contains(needed), "{needed}: {control}");
    }
    let addresses: Vec<&str> = control.lines().filter(|line| line.contains('@')).collect();
    ensure!(
        matches!(addresses[..], [line] if line.starts_with("Maintainer: ") && line.ends_with('>')),
        "a placeholder was not replaced: {control}"
    );
    ensure!(!control.contains("root@localhost"), "{control}");
    Ok(())
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn files_are_where_they_belong_and_alter_no_program() -> Result<()> {
    let Some(root) = Root::with_package()? else {
        return Ok(());
    };
    let files = root.run("dpkg -L fanpcap")?;
    let multiarch = multiarch()?;
    for file in [
        "/usr/bin/fanpcap",
        "/usr/libexec/fanpcap/fanpcap-bench",
        "/usr/libexec/fanpcap/fanpcap-cluster",
        &format!("/usr/lib/{multiarch}/fanpcap/libpcap.so.0.8"),
        &format!("/usr/lib/{multiarch}/pkgconfig/fanpcap.pc"),
        "/usr/include/pcap/fanout.h",
        "/usr/share/man/man1/fanpcap.1.gz",
        "/usr/share/man/man1/fanpcap-run.1.gz",
        "/usr/share/man/man3/pcap_fanout.3pcap.gz",
        "/usr/share/man/man3/pcap_channels.3pcap.gz",
        "/usr/share/man/man5/pcap.conf.5.gz",
        "/usr/share/man/man5/cluster.conf.5.gz",
        "/usr/share/man/man7/fanpcap-lang.7.gz",
        "/usr/share/doc/fanpcap/copyright",
        "/usr/share/doc/fanpcap/top-json.md",
        "/usr/share/doc/fanpcap/errors.md",
        "/usr/share/doc/fanpcap/changelog.Debian.gz",
        "/usr/share/bash-completion/completions/fanpcap",
    ] {
        ensure!(files.lines().any(|line| line == file), "no {file}: {files}");
        ensure!(root.file(file).exists(), "no {file}");
    }
    let wrong = root.run("dpkg --verify fanpcap")?;
    ensure!(wrong.is_empty(), "{wrong}");
    ensure!(!root.run("tcpdump --version")?.contains("fanpcap"));
    ensure!(
        root.run("fanpcap run --help")?
            .contains("Usage: fanpcap run")
    );
    Ok(())
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn enabled_plain_tcpdump_loads_the_library_until_disabled() -> Result<()> {
    let Some(root) = Root::with_package()? else {
        return Ok(());
    };
    fs::write(root.file(LOCAL), "  /srv/captures/** rw,")?;
    let before = Listing::of(&root.path())?;
    let said = root.run("fanpcap enable --system")?;
    for told in [CONF, "pcap.conf(5)", "fanpcap disable --system", LOCAL] {
        ensure!(said.contains(told), "{told}: {said}");
    }
    let version = root.run("tcpdump --version")?;
    ensure!(version.contains("+ fanpcap "), "{version}");
    // AppArmor's parser must accept the block and the rules that it includes.
    let parse = "apparmor_parser --skip-kernel-load --skip-cache";
    root.run(&format!("{parse} /etc/apparmor.d/usr.bin.tcpdump"))?;
    let preprocess = format!("{parse} --preprocess /etc/apparmor.d/usr.bin.tcpdump");
    ensure!(root.run(&preprocess)?.contains("/etc/pcap.conf r,"));

    let enabled = Listing::of(&root.path())?;
    ensure!(
        root.run("fanpcap enable --system")?
            .contains("Already enabled")
    );
    let twice = enabled.differences(&Listing::of(&root.path())?);
    ensure!(twice.is_empty(), "a second enable changed files: {twice:?}");

    let said = root.run("fanpcap disable --system")?;
    ensure!(said.contains("Removed"), "{said}");
    // Enable from outside the root directory too, as image builders do. If the command needs a
    // newer libc than this machine has, nobody can do that here.
    let (command, dir) = (root.file("/usr/bin/fanpcap"), root.path());
    let starts = Command::new(&command).arg("--version").output()?;
    let words: &[&str] = match starts.status.success() {
        true => &["enable", "disable"],
        false => &[],
    };
    for word in words {
        let mut outside = Command::new(&command);
        // Unset the variable that names the library's directory: it is set for other tests.
        outside.env_remove("FANPCAP_LIB_DIR");
        success(outside.args([word, "--system", "--root"]).arg(&dir))?;
        let is_ours = root.run("tcpdump --version")?.contains("+ fanpcap ");
        ensure!(is_ours == (*word == "enable"), "{word} --root");
    }
    ensure!(!root.run("tcpdump --version")?.contains("fanpcap"));
    ensure!(
        root.run("fanpcap disable --system")?
            .contains("Not enabled")
    );
    let left = before.differences(&Listing::of(&root.path())?);
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn a_reader_that_goes_and_a_failure_to_disable_keep_nothing_half_done() -> Result<()> {
    let Some(root) = Root::with_package()? else {
        return Ok(());
    };
    let status = root.run(
        "umask 077; { sleep 1; fanpcap enable --system; echo $? >/tmp/status; } | true; \
         for i in 1 2 3 4 5 6 7 8 9; do [ -s /tmp/status ] || sleep 1; done; cat /tmp/status",
    )?;
    ensure!(status.trim() == "0", "{status}");
    let block = fs::read_to_string(root.file(LOCAL))?;
    ensure!(
        root.file(CONF).exists() && block.contains("begin fanpcap"),
        "{block}"
    );
    ensure!(root.run(&format!("stat -c %a {CONF}"))?.trim() == "644");
    // Removing the package must succeed even if `fanpcap` fails to undo its changes.
    root.run("printf '#!/bin/sh\\nexit 1\\n' >/usr/bin/fanpcap")?;
    let said = root.run("dpkg --remove fanpcap")?;
    ensure!(said.contains("not all of"), "{said}");
    ensure!(root.run("tcpdump --version").is_ok());
    Ok(())
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn enable_refuses_when_another_library_would_come_first() -> Result<()> {
    let Some(root) = Root::with_package()? else {
        return Ok(());
    };
    let config = fs::read_to_string(root.file("/etc/ld.so.conf"))?;
    let system = format!("/lib/{}", multiarch()?);
    fs::write(root.file("/etc/ld.so.conf"), format!("{system}\n{config}"))?;
    root.run("ldconfig")?;
    let before = Listing::of(&root.path())?;
    let said = root.run("fanpcap enable --system || true")?;
    let told = format!("{system}/libpcap.so.0.8 comes before");
    ensure!(said.contains(&told), "{said}");
    let left = before.differences(&Listing::of(&root.path())?);
    ensure!(left.is_empty(), "{left:?}");
    // enable refuses a library that users other than root can change, because all programs would
    // load it.
    fs::write(root.file("/etc/ld.so.conf"), config)?;
    root.run("chmod 777 /usr/lib/*/fanpcap")?;
    let said = root.run("fanpcap enable --system || true")?;
    ensure!(said.contains("users other than root may change"), "{said}");
    ensure!(!root.file(CONF).exists());
    Ok(())
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn an_upgrade_keeps_it_enabled_and_purge_leaves_no_trace() -> Result<()> {
    let Some(root) = Root::new()? else {
        return Ok(());
    };
    let before = Listing::of(&root.path())?;
    root.install()?;
    root.run("fanpcap enable --system")?;
    root.install()?;
    ensure!(root.run("tcpdump --version")?.contains("+ fanpcap "));
    // A killed member leaves its page and directory behind.
    for pages in ["/run/fanpcap/1.5", "/dev/shm/fanpcap/1.5"] {
        fs::create_dir_all(root.file(pages))?;
    }
    root.run("apt-get purge -y -qq fanpcap")?;
    let left = before.differences(&Listing::of(&root.path())?);
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn the_dockerfiles_commands_make_an_image_that_works() -> Result<()> {
    let Some(root) = Root::new()? else {
        return Ok(());
    };
    let path = workspace().join("packaging/examples/Dockerfile");
    let text = fs::read_to_string(path)?.replace("\\\n", " ");
    // The first stage builds the package, which is the work of `make deb` in a clean root.
    let (_, last) = text.rsplit_once("\nFROM ").context("two stages")?;
    let commands: Vec<&str> = last
        .lines()
        .filter_map(|l| l.strip_prefix("RUN "))
        .collect();
    let copy = "\nCOPY --from=build /src/target/fanpcap/fanpcap_*.deb /tmp/\n";
    ensure!(
        last.contains(copy) && text.contains("&& make -C /src deb\n"),
        "{text}"
    );
    let package = package()?;
    let name = package.file_name().context("the package's name")?;
    fs::copy(&package, root.file("tmp").join(name))?;
    for command in commands {
        // Skip `apt-get update`, because the package lists are larger than all other data. They
        // exist already, because tcpdump was installed with them.
        root.run(&command.replace("apt-get update", "true"))?;
    }
    ensure!(root.run("tcpdump --version")?.contains("+ fanpcap "));
    ensure!(root.run("fanpcap top --once")?.contains("fanpcap top"));
    ensure!(root.run("ls /tmp")?.is_empty());
    Ok(())
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn removal_takes_back_what_tune_has_changed() -> Result<()> {
    let Some(root) = Root::with_package()? else {
        return Ok(());
    };
    // Use a separate thread, because the hosts move it to their network namespace.
    let removed = thread::scope(|scope| {
        let remove = || -> Result<()> {
            let _hosts = Hosts::new()?;
            let line = format!(
                "mount -o remount,rw /sys && mount -t tmpfs tmpfs /run && \
                 cd /sys/class/net/{DEVICE}/queues/rx-0 && \
                 before=$(cat rps_cpus) && fanpcap tune {DEVICE} --apply && \
                 test $(cat rps_cpus) != $before && dpkg --remove fanpcap && \
                 test $(cat rps_cpus) = $before && echo taken back"
            );
            let said = root.run(&line)?;
            ensure!(
                said.contains("as before") && said.ends_with("taken back\n"),
                "{said}"
            );
            Ok(())
        };
        scope.spawn(remove).join()
    });
    removed.expect("no panic")
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn two_plain_tcpdumps_share_once_enabled() -> Result<()> {
    let Some(root) = Root::with_package()? else {
        return Ok(());
    };
    root.run("fanpcap enable --system")?;
    // Use a separate thread, because `share` moves its thread to other network namespaces.
    let shared = thread::scope(|scope| scope.spawn(|| share(&root)).join());
    shared.expect("no panic")
}

#[test]
#[ignore = "needs root: a Debian in a directory"]
fn copies_of_tcpdump_share_what_run_sums_up() -> Result<()> {
    let Some(root) = Root::with_package()? else {
        return Ok(());
    };
    let ran = thread::scope(|scope| scope.spawn(|| run_copies(&root)).join());
    ran.expect("no panic")
}

/// What a user of the package tries first: four copies of tcpdump by `fanpcap run`.
fn run_copies(root: &Root) -> Result<()> {
    let hosts = Hosts::new()?;
    let line = [
        "sh",
        "-c",
        "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 shm /dev/shm && unset FANPCAP_LIB_DIR && exec \"$@\"",
        "sh",
        "fanpcap",
        "run",
        "-n",
        "4",
        "--merge",
        "/tmp/all.pcap",
        "--",
        "tcpdump",
        "-n",
        "-U",
        "-Z",
        "root",
        "-i",
        DEVICE,
        "-w",
        "/tmp/%i.pcap",
    ];
    let member = Program::new("unshare", "on demo-b: 4 copies")?
        .args(root.entered(&line))
        .set("LD_LIBRARY_PATH", "")
        .start(root.scratch())?;
    let packets = hosts.talk(EACH)?;
    let files = [0, 1, 2, 3].map(|copy| root.file(&format!("/tmp/{copy}.pcap")));
    let written = || {
        files
            .iter()
            .map(|file| Capture::count_so_far(file))
            .sum::<usize>()
    };
    await_for("the last packets", await_for::LIMIT, || {
        Ok((written() >= packets).then_some(()))
    })
    .with_context(|| format!("{} of {packets} packets", written()))?;
    let said = member.stop()?.said;
    let all = said.lines().find(|line| line.contains("fanpcap: all"));
    let all: Vec<&str> = all.context("the sums")?.split_whitespace().collect();
    let expected = format!("fanpcap: all 4 {packets} 0 {packets} {packets}");
    ensure!(all.join(" ") == expected, "{said}");
    let merged = Capture::read(&root.file("/tmp/all.pcap"))?;
    ensure!(merged.packets.len() == packets, "{said}");
    Ok(())
}

fn share(root: &Root) -> Result<()> {
    let hosts = Hosts::new()?;
    let files = ["/tmp/0.pcap", "/tmp/1.pcap"];
    let members: Vec<Member> = files
        .iter()
        .map(|file| start(root, file))
        .collect::<Result<_>>()?;
    let packets = hosts.talk(EACH)?;
    let written = || files.map(|file| Capture::count_so_far(&root.file(file)));
    await_for("the last packets", await_for::LIMIT, || {
        Ok((written().iter().sum::<usize>() >= packets).then_some(()))
    })
    .with_context(|| format!("{:?} of {packets} packets", written()))?;
    for member in members {
        member.stop()?;
    }
    let captures: Vec<Capture> = files
        .iter()
        .map(|file| Capture::read(&root.file(file)))
        .collect::<Result<_>>()?;
    ensure!(
        written().iter().sum::<usize>() == packets,
        "{:?}",
        written()
    );
    let split: Vec<FlowKey> = capture::split_flows(&captures).into_iter().collect();
    ensure!(split.is_empty(), "at both: {split:?}");
    ensure!(written().iter().all(|&share| share > 0), "{:?}", written());
    Ok(())
}

/// Starts tcpdump in the root directory, with no settings but a group.
fn start(root: &Root, file: &str) -> Result<Member> {
    let tcpdump = [
        "tcpdump", "-n", "-U", "-Z", "root", "-i", DEVICE, "-w", file,
    ];
    Program::new("unshare", "listening on")?
        .args(root.entered(&tcpdump))
        .set("LD_LIBRARY_PATH", "")
        .group(5, "hash")
        .start(root.scratch())
}

fn multiarch() -> Result<String> {
    let mut dpkg = Command::new("dpkg-architecture");
    let said = success(dpkg.args(["-q", "DEB_HOST_MULTIARCH"]))?;
    Ok(said.trim().to_owned())
}
