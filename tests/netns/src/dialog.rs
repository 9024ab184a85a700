//! A dialog with a process: the process gets commands line by line, and answers each command with
//! one or more lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::library;

use crate::{DEVICE, Wire};

/// A running `c/steered.c`, or another program that takes the same commands.
#[derive(Debug)]
pub struct Dialog {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Dialog {
    /// Starts `c/steered.c`, whose handles capture at [`DEVICE`] and join `group`; -1 means a new
    /// group.
    ///
    /// # Errors
    /// The program can't be compiled or started.
    pub fn start(wire: &Wire, group: impl Into<i32>) -> Result<Self> {
        Self::behind(wire, group, &[])
    }

    /// Starts `c/steered.c` by the command `before`, for example a command that takes privileges
    /// away.
    ///
    /// # Errors
    /// As [`Dialog::start`].
    pub fn behind(wire: &Wire, group: impl Into<i32>, before: &[&str]) -> Result<Self> {
        Self::of(wire, "steered", group, before)
    }

    /// Starts another program that has the same arguments as `c/steered.c`.
    ///
    /// # Errors
    /// As [`Dialog::start`].
    pub fn of(wire: &Wire, name: &str, group: impl Into<i32>, before: &[&str]) -> Result<Self> {
        // Do not compile the program again: our library would consider the new file another
        // application.
        let built = wire.scratch.file(name);
        let program = match built.exists() {
            true => built,
            false => wire.compile(name)?,
        };
        let program = program.to_str().context("a path in UTF-8")?;
        let group = group.into().to_string();
        let words = [before, &[program, DEVICE, &group]].concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .env("LD_LIBRARY_PATH", library::library_dir()?)
            .env("PCAP_CONFIG", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {words:?}"))?;
        let to = child.stdin.take().context("its standard input")?;
        let from = child.stdout.take().context("its standard output")?;
        let from = BufReader::new(from);
        let mut dialog = Self { child, to, from };
        dialog.ensure_hears("ready")?;
        Ok(dialog)
    }

    /// The process that runs the program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of the program's output.
    ///
    /// # Errors
    /// The program ends before it has printed a line.
    pub fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "the program has ended");
        Ok(line.trim_end().to_owned())
    }

    fn ensure_hears(&mut self, expected: &str) -> Result<()> {
        let said = self.hear()?;
        ensure!(said == expected, "not {expected:?} but {said:?}");
        Ok(())
    }

    /// Sends a line. The caller must read the answer by [`Dialog::hear`].
    ///
    /// # Errors
    /// The program has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.to, "{line}")?)
    }

    /// Sends a line and returns the answer.
    ///
    /// # Errors
    /// The program ends without an answer.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        self.tell(line)?;
        self.hear()
    }

    /// Sends a line and checks that the answer is `answer`.
    ///
    /// # Errors
    /// The answer differs.
    pub fn expect(&mut self, line: &str, answer: &str) -> Result<()> {
        let said = self.ask(line)?;
        ensure!(said == answer, "{line:?}: not {answer:?} but {said:?}");
        Ok(())
    }

    /// Opens a handle under a steering program. Ignores the warning that the group has members of
    /// another application.
    ///
    /// # Errors
    /// The handle can't be opened.
    pub fn open_beside(&mut self, program: &str) -> Result<()> {
        let mut said = self.ask(&format!("open {program}"))?;
        if said.starts_with("warned: ") {
            said = self.hear()?;
        }
        ensure!(said.starts_with("opened "), "{said}");
        Ok(())
    }

    /// The packets that a handle has received so far.
    ///
    /// # Errors
    /// The program does not print the number.
    pub fn count(&mut self, handle: usize) -> Result<usize> {
        let said = self.ask(&format!("count {handle}"))?;
        let count = said.split(' ').nth(2).and_then(|count| count.parse().ok());
        count.with_context(|| said.clone())
    }
}

impl Drop for Dialog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
