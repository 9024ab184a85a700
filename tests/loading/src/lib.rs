//! Compiles applications from C for the tests of loading, and runs them on the system's library or
//! on ours.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Scratch, await_for, needs, traffic};

pub use fanpcap_testkit::library::library_dir;

/// The name of the file that applications of libpcap load.
pub const LIBRARY: &str = "libpcap.so.0.8";

/// A program's output and exit status.
#[derive(Debug)]
pub struct Ended {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Exit code or signal.
    pub status: ExitStatus,
}

impl Ended {
    /// Standard output of a program that succeeded.
    ///
    /// # Errors
    /// The program did not succeed.
    pub fn success(self) -> Result<String> {
        ensure!(
            self.status.success(),
            "{} (signal {:?})\n{}{}",
            self.status,
            self.status.signal(),
            self.out,
            self.err
        );
        Ok(self.out)
    }
}

/// Compiles one of the programs in `c/` against the installed libpcap, as a distribution does.
///
/// # Errors
/// The compiler fails or warns; the error has its messages.
pub fn compile(scratch: &Scratch, source: &str, flags: &[&str]) -> Result<PathBuf> {
    needs::libpcap_headers()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(source);
    let program = scratch.new_file(source);
    // CC and CXX name the compilers of another architecture.
    let (variable, usual) = match source.ends_with(".cc") {
        true => ("CXX", "c++"),
        false => ("CC", "cc"),
    };
    let compiler = env::var(variable).unwrap_or_else(|_| usual.to_owned());
    let mut command = Command::new(&compiler);
    command
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(flags);
    command
        .arg("-o")
        .arg(&program)
        .arg(&path)
        .args(["-lpcap", "-ldl"]);
    let done = command
        .output()
        .with_context(|| format!("running {compiler}"))?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{source}: {complaint}");
    Ok(program)
}

/// A command that runs the program without settings, so that the program loads the system's
/// library.
pub fn on_system(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let name_bytes = name.as_encoded_bytes();
        if ["PCAP_", "FANPCAP_", "LD_"]
            .iter()
            .any(|start| name_bytes.starts_with(start.as_bytes()))
        {
            command.env_remove(name);
        }
    }
    // The config file is empty, because the machine's own config file must have no effect.
    command.env("PCAP_CONFIG", "/dev/null");
    command
}

/// A command that runs the program with our library, without settings.
///
/// # Errors Our library has not been built (`make`).
pub fn on_ours(program: impl AsRef<OsStr>) -> Result<Command> {
    let mut command = on_system(program);
    command.env("LD_LIBRARY_PATH", library_dir()?);
    Ok(command)
}

/// Runs a program to its end, within a time limit.
///
/// # Errors
/// The program can't be started, or does not end in time.
pub fn run(scratch: &Scratch, command: &mut Command) -> Result<Ended> {
    let (out, err) = (scratch.new_file("out"), scratch.new_file("err"));
    command
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?);
    let mut child = command
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let ended = await_for("a program's end", await_for::LIMIT * 3, || {
        Ok(child.try_wait()?)
    });
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let read = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Ended {
        out: read(out)?,
        err: read(err)?,
        status: ended?,
    })
}

/// Runs `judge`, a program that validates files, and checks that it finds no error. If the program
/// isn't installed, reports the test as skipped and returns false.
///
/// # Errors The program fails or writes to standard error. The returned error has what it wrote.
pub fn is_judged(scratch: &Scratch, judge: &mut Command) -> Result<bool> {
    let name = judge.get_program().to_string_lossy().into_owned();
    let Ok(ended) = run(scratch, judge) else {
        skip(&format!("no {name} here"));
        return Ok(false);
    };
    ensure!(
        ended.status.success() && ended.err.is_empty(),
        "{}",
        ended.err
    );
    Ok(true)
}

/// A savefile with some TCP and UDP packets.
///
/// # Errors
/// The file can't be written.
pub fn savefile(scratch: &Scratch) -> Result<PathBuf> {
    let mut bytes = Vec::new();
    // The header's words: the magic number for microseconds, version 2.4, two zero words, snapshot
    // length, Ethernet.
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1] {
        bytes.extend(u32::to_ne_bytes(word));
    }
    for frame in traffic::frames(1, &traffic::flows(1, 4), 0..32)? {
        let length = u32::try_from(frame.bytes.len())?;
        for word in [1_700_000_000, 0, length, length] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(frame.bytes);
    }
    let path = scratch.new_file("pcap");
    fs::write(&path, bytes)?;
    Ok(path)
}

/// The first of these files that exists, or `None` if none of them exists.
pub fn found(paths: &[&str]) -> Option<PathBuf> {
    paths.iter().map(PathBuf::from).find(|path| path.exists())
}

/// Reports that a test can't run here, and why. The test then counts as skipped, not as passed.
#[expect(clippy::print_stdout, reason = "what a test prints is how it says so")]
pub fn skip(reason: &str) {
    println!("SKIP: {reason}");
}

/// The file of the system's library.
///
/// # Errors
/// There is no such file.
pub fn system_library() -> Result<PathBuf> {
    let machine = env::consts::ARCH;
    let directories = [
        &format!("/usr/lib/{machine}-linux-gnu"),
        "/usr/lib64",
        "/usr/lib",
    ];
    let path = directories
        .map(|dir| Path::new(dir).join(LIBRARY))
        .into_iter()
        .find(|path| path.exists());
    path.context("the system has no libpcap.so.0.8")?
        .canonicalize()
        .context("its file")
}
