//! Checks what `make install` installs. The manual pages must be well-formed and complete. Their
//! programs, built against the installed files as a user builds them, must work as described.

mod links;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_loading::{is_judged, on_system, run};
use fanpcap_testkit::{
    Direction, Injector, Member, Program, Scratch, Veth, member, needs, netns, traffic,
};

const FRAMES: u64 = 400;
/// The group that both programs of the pages use.
const GROUP: u16 = 7;

#[test]
fn the_pages_are_well_formed() -> Result<()> {
    let tree = Tree::install()?;
    let installed = tree.prefix().join("share/man");
    let mut pages = Vec::new();
    for (section, least) in [("man1", 10), ("man3", 1), ("man5", 1), ("man7", 1)] {
        let found = files(&installed.join(section))?;
        ensure!(found.len() >= least, "{section}: {found:?}");
        pages.extend(found);
    }
    let scratch = Scratch::new()?;
    for page in pages {
        let mut groff = Command::new("groff");
        groff.args(["-t", "-man", "-ww", "-z", "-Tutf8"]).arg(&page);
        if !is_judged(&scratch, &mut groff)? {
            break;
        }
    }
    Ok(())
}

#[test]
fn the_installed_command_finds_the_installed_library() -> Result<()> {
    let tree = Tree::install()?;
    let (library, command) = (
        tree.prefix().join("lib/fanpcap"),
        tree.prefix().join("bin/fanpcap"),
    );
    let said = run(&tree.scratch, on_system(&command).arg("enable"))?.success()?;
    let line = format!(
        "export LD_LIBRARY_PATH='{}'\n",
        library.canonicalize()?.display()
    );
    ensure!(said == line, "{said}");
    // In a shell, a program that starts between `enable` and `disable` must use our library.
    let script = "eval \"$(\"$0\" enable)\"; tcpdump --version; \
                  eval \"$(\"$0\" disable)\"; echo \"left: $LD_LIBRARY_PATH\"";
    let mut shell = on_system("sh");
    shell.args(["-c", script]).arg(&command);
    let said = run(&tree.scratch, &mut shell)?.success()?;
    ensure!(
        said.contains("+ fanpcap ") && said.ends_with("left: \n"),
        "{said}"
    );
    Ok(())
}

#[test]
fn completions_documents_and_the_pkg_config_file_are_installed() -> Result<()> {
    let tree = Tree::install()?;
    let share = tree.prefix().join("share");
    ensure!(share.join("doc/fanpcap/guide.md").exists(), "no guide");
    for example in files(&root().join("packaging/examples"))? {
        let name = example.file_name().context("a name")?;
        let installed = share.join("doc/fanpcap/examples").join(name);
        ensure!(fs::read(&installed)? == fs::read(&example)?, "{name:?}");
    }
    for (shell, file) in [
        ("bash", "bash-completion/completions/fanpcap"),
        ("zsh", "zsh/site-functions/_fanpcap"),
        ("fish", "fish/vendor_completions.d/fanpcap.fish"),
    ] {
        let path = share.join(file);
        let mut command = on_system(shell);
        match run(&tree.scratch, command.arg("-n").arg(&path)) {
            Ok(ended) => ended.success().map(|_| ())?,
            // This shell isn't installed, so skip it.
            Err(_) => continue,
        }
    }
    let pc = tree.prefix().join("lib/pkgconfig/fanpcap.pc");
    let text = fs::read_to_string(pc)?;
    let prefix = format!("prefix={}\n", tree.prefix().display());
    for line in [
        prefix.as_str(),
        "libdir=${prefix}/lib/fanpcap\n",
        "-lpcap\n",
    ] {
        ensure!(text.contains(line), "{line}: {text}");
    }
    Ok(())
}

#[test]
fn bash_completes_what_belongs_there_and_no_internals() -> Result<()> {
    let tree = Tree::install()?;
    let script = tree
        .prefix()
        .join("share/bash-completion/completions/fanpcap");
    let command = tree.prefix().join("bin/fanpcap");
    // Bash calls the function with all words of the command line, the last one incomplete.
    let text = ". \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _fanpcap; \
                printf '%s\\n' \"${COMPREPLY[@]}\"";
    let completed = |words: &[&str]| -> Result<String> {
        let mut bash = on_system("bash");
        bash.args(["-c", text, "bash"])
            .arg(&script)
            .arg(&command)
            .args(words);
        run(&tree.scratch, &mut bash)?.success()
    };
    for (words, expected) in [
        (&["conf"][..], "config\n"),
        (&["top", "l"], "lo\n"),
        (&["capture", "--fanout", "roll"], "rollover\n"),
        (&["ben"], "bench\n"),
        (&["bench", "steerin"], "steering\n"),
        (&["top", "--sort", "drops"], "drops\n"),
        // The function returns no candidates here, so that the shell completes file names itself.
        (&["lang", "check", ""], "\n"),
    ] {
        let said = completed(words)?;
        ensure!(said == expected, "{words:?}: {said}");
    }
    let all = completed(&[""])?;
    ensure!(all.contains("run\n") && !all.contains("manual"), "{all}");
    Ok(())
}

#[test]
fn the_command_runs_the_bench_that_is_installed() -> Result<()> {
    let tree = Tree::install()?;
    let command = tree.prefix().join("bin/fanpcap");
    for (words, expected) in [
        (["bench", "list"], "tpacket-cpu "),
        (["bench", "--help"], "Usage: fanpcap bench "),
        (["help", "bench"], "Usage: fanpcap bench "),
    ] {
        let said = run(&tree.scratch, on_system(&command).args(words))?.success()?;
        ensure!(said.contains(expected), "{words:?}: {said}");
    }
    let bench = tree.prefix().join("libexec/fanpcap/fanpcap-bench");
    let refused = |why: &str| {
        let output = on_system(&command).args(["bench", "list"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains(why), "{said}");
        Ok(())
    };
    fs::remove_file(&bench)?;
    refused("which is not installed")?;
    fs::copy("/bin/true", &bench)?;
    refused("is not run: its build is unknown")
}

#[test]
fn the_pages_tell_of_every_function() -> Result<()> {
    let root = root();
    let header = fs::read_to_string(root.join("crates/fanpcap-abi/include/pcap/fanout.h"))?;
    let page = |name: &str| fs::read_to_string(root.join("docs/man").join(name));
    let pages = page("pcap_fanout.3pcap")? + &page("pcap_channels.3pcap")?;
    let words = |text: &str| -> Vec<String> {
        let word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        text.split(word)
            .map(str::to_lowercase)
            .filter(|name| name.contains("fanout") || name.contains("channel"))
            .collect()
    };
    let told = words(&pages);
    let inner = [
        "fanpcap_pcap_fanout_h",
        "pcap_fanout_stat_",
        "pcap_version_fanout",
    ];
    let untold: Vec<String> = words(&header)
        .into_iter()
        .filter(|name| !told.contains(name) && !inner.contains(&&**name))
        .collect();
    ensure!(untold.is_empty(), "the pages don't mention {untold:?}");
    Ok(())
}

#[test]
fn the_programs_compile() -> Result<()> {
    let tree = Tree::install()?;
    for name in ["threads.c", "weak.c"] {
        tree.compile(name, &tree.prefix())?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: captures in a network namespace"]
fn four_threads_share_the_packets() -> Result<()> {
    let tree = Tree::install()?;
    let program = tree.compile("threads.c", &tree.prefix())?;
    on_wire(|send| {
        let member = tree
            .program(&program)?
            .args(["vb", "3"])
            .start(&tree.scratch)?;
        send()?;
        let ended = member.wait()?;
        ensure!(ended.status.success(), "{}", ended.said);
        let shares: Vec<u64> = (0..4)
            .map(|thread| share(&ended.said, thread))
            .collect::<Result<_>>()?;
        ensure!(shares.iter().sum::<u64>() == FRAMES, "{}", ended.said);
        ensure!(shares.iter().all(|&share| share > 0), "{}", ended.said);
        let group = format!("group {GROUP}: 4 members, {FRAMES} packets");
        ensure!(ended.said.contains(&group), "{}", ended.said);
        Ok(())
    })
}

/// The number of packets in a thread's line, such as `thread 2: 117 packets, 0 dropped`.
fn share(said: &str, thread: usize) -> Result<u64> {
    let start = format!("thread {thread}: ");
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix(&start))
        .context("a thread's line")?;
    line.split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .context("its packets")
}

#[test]
#[ignore = "needs root: captures in a network namespace"]
fn with_weak_symbols_two_processes_share() -> Result<()> {
    let tree = Tree::install()?;
    // Build the program as on a system where fanpcap was never installed: with a prefix that does
    // not exist.
    let program = tree.compile("weak.c", Path::new("/nonexistent"))?;
    on_wire(|send| {
        let start = || {
            tree.program(&program)?
                .args(["vb", "20"])
                .start(&tree.scratch)
        };
        let members: Vec<Member> = vec![start()?, start()?];
        member::wait_for_members(GROUP, 2)?;
        send()?;
        for member in members {
            let ended = member.wait()?;
            ensure!(
                ended.status.success() && ended.said.contains("20 packets"),
                "{}",
                ended.said
            );
            ensure!(!ended.said.contains("no fan-out"), "{}", ended.said);
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: captures in a network namespace"]
fn with_weak_symbols_a_plain_libpcap_serves_too() -> Result<()> {
    let tree = Tree::install()?;
    for built_against in [tree.prefix(), PathBuf::from("/nonexistent")] {
        let program = tree.compile("weak.c", &built_against)?;
        on_wire(|send| {
            let mut plain = Program::new(&program, "capturing")?.args(["vb", "20"]);
            plain = plain.set("LD_LIBRARY_PATH", "");
            let member = plain.start(&tree.scratch)?;
            send()?;
            let ended = member.wait()?;
            ensure!(
                ended.status.success() && ended.said.contains("20 packets"),
                "{}",
                ended.said
            );
            ensure!(
                ended.said.contains("no fan-out in libpcap version"),
                "{}",
                ended.said
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// Runs `test` in a new namespace. Gives `test` a function that sends [`FRAMES`] frames, all of
/// which pass the device vb.
fn on_wire(test: impl FnOnce(&dyn Fn() -> Result<()>) -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        Veth::new("va", "vb", 1)?;
        let (requests, replies) = (Injector::open("va")?, Injector::open("vb")?);
        test(&|| {
            for frame in traffic::frames(1, &traffic::flows(1, 25), 0..FRAMES)? {
                let side = if frame.direction == Direction::Request {
                    &requests
                } else {
                    &replies
                };
                side.send(&frame.bytes)?;
            }
            Ok(())
        })
    })
}

#[test]
fn uninstall_removes_what_install_made_and_nothing_else() -> Result<()> {
    let tree = Tree {
        scratch: Scratch::new()?,
    };
    let others = tree.prefix().join("share/man/man1");
    fs::create_dir_all(&others)?;
    fs::write(others.join("other.1"), "")?;
    let before = tree.listing()?;
    tree.make("install")?;
    ensure!(tree.prefix().join("lib/fanpcap/libpcap.so").exists());
    // Install again, as for an update. The list of the directories that the first installation
    // created must be kept, so that `uninstall` removes them.
    tree.make("install")?;
    tree.make("uninstall")?;
    let after = tree.listing()?;
    ensure!(after == before, "{after:#?}");
    Ok(())
}

/// The files that `make install` creates, in a directory of the test.
struct Tree {
    scratch: Scratch,
}

impl Tree {
    fn install() -> Result<Self> {
        let tree = Self {
            scratch: Scratch::new()?,
        };
        tree.make("install")?;
        Ok(tree)
    }

    /// Runs `make install` or `make uninstall`.
    fn make(&self, goal: &str) -> Result<()> {
        let mut command = on_system("make");
        command
            .args(["-s", goal])
            .arg(format!("PREFIX={}", self.prefix().display()));
        run(
            &self.scratch,
            command.current_dir(root()).env_remove("DESTDIR"),
        )?
        .success()?;
        Ok(())
    }

    /// All files and directories of the tree.
    fn listing(&self) -> Result<Vec<String>> {
        let mut find = on_system("find");
        find.arg(self.prefix()).args(["-mindepth", "1"]);
        let said = run(&self.scratch, &mut find)?.success()?;
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        lines.sort();
        Ok(lines)
    }

    fn prefix(&self) -> PathBuf {
        self.scratch.file("prefix")
    }

    /// Extracts a program from the pages and compiles it as the pages describe.
    fn compile(&self, name: &str, prefix: &Path) -> Result<PathBuf> {
        needs::libpcap_headers()?;
        let source = self.scratch.write(name, &program(name)?)?;
        let output = self.scratch.new_file(name);
        let mut command = Command::new("cc");
        command
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([&output, &source]);
        command.arg("-I").arg(prefix.join("include"));
        command.arg("-L").arg(prefix.join("lib/fanpcap"));
        run(&self.scratch, command.args(["-lpcap", "-lpthread"]))?.success()?;
        Ok(output)
    }

    /// A command that runs a program on the installed library.
    fn program(&self, program: &Path) -> Result<Program> {
        let library = self.prefix().join("lib/fanpcap");
        Ok(Program::new(program, "capturing")?.set("LD_LIBRARY_PATH", library))
    }
}

/// The text of the program in the manual pages whose first comment begins with this name.
fn program(name: &str) -> Result<String> {
    for page in pages()? {
        let text = fs::read_to_string(&page)?;
        let examples = text
            .split("\n.EX\n")
            .skip(1)
            .filter_map(|rest| rest.split("\n.EE\n").next());
        let found = examples
            .map(plain)
            .find(|code| code.starts_with(&format!("/* {name}: ")));
        if let Some(code) = found {
            return Ok(code + "\n");
        }
    }
    anyhow::bail!("no page has the program {name}")
}

/// The page's text without roff escapes.
fn plain(text: &str) -> String {
    text.replace("\\-", "-")
        .replace("\\&", "")
        .replace("\\e", "\\")
}

fn pages() -> Result<Vec<PathBuf>> {
    files(&root().join("docs/man"))
}

/// The files in a directory.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    ensure!(!files.is_empty(), "nothing in {}", dir.display());
    Ok(files)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The test skips example lines that contain one of these texts. Such lines change the machine,
/// measure for a long time, or need programs, devices or files that the test does not have.
#[rustfmt::skip]
const NOT_HERE: [&str; 12] = [
    "p cluster", "p node", "p coord", "p analyzer", "--system", "bench steering", "bench compare", "eval ", "p group",
    "--policy", "netmap:", "dpdk:",
];

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn the_examples_of_the_commands_pages_work() -> Result<()> {
    let tree = Tree::install()?;
    let mut lines = Vec::new();
    for page in files(&tree.prefix().join("share/man/man1"))? {
        let text = fs::read_to_string(&page)?;
        let (_, examples) = text.split_once(".SH EXAMPLES").context("no examples")?;
        for example in examples.split(".EX\n").skip(1) {
            let (shown, _) = example.split_once("\n.EE").context(".EE")?;
            let shown = shown.replace("\\-", "-").replace("\\(aq", "'");
            lines.extend(shown.lines().map(str::to_owned));
        }
    }
    lines.retain(|line| NOT_HERE.iter().all(|part| !line.contains(part)));
    ensure!(lines.len() >= 15, "{lines:?}");
    netns::within_new(|| {
        Veth::new("eth0", "eth1", 1)?;
        let scratch = Scratch::new()?;
        scratch.write("steer.pfq", "main = tcp >-> steer_flow\n")?;
        let directory = scratch.file("steer.pfq");
        let directory = directory.parent().context("a directory")?.to_owned();
        // Other examples read a capture file. For them the test first captures the traffic that it
        // sends.
        let bin = tree.prefix().join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
        let try_line = |line: &str| -> Result<()> {
            // Send traffic until the line's command ends. A signal ends a command that would run
            // for ever.
            let script = format!(
                "fanpcap gen -i eth1 --rate 5k --seconds 6 >/dev/null 2>&1 & \
                 timeout --preserve-status -s INT 4 sh -c '{}'; code=$?; kill $!; \
                 [ $code = 130 ] || exit $code",
                line.replace('\'', "'\\''")
            );
            let mut shell = on_system("bash");
            shell
                .args(["-c", &script])
                .current_dir(&directory)
                .env("PATH", &path);
            run(&scratch, &mut shell)?
                .success()
                .with_context(|| line.to_owned())?;
            Ok(())
        };
        try_line("fanpcap capture -i eth0 --count 100 --write traffic.pcap")?;
        lines.iter().try_for_each(|line| try_line(line))
    })
}
