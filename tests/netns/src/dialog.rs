//! A dialog with a process: it gets commands line by line and answers each with one or more lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::library;

use crate::{DEVICE, Wire};

/// `c/steered.c`, running.
#[derive(Debug)]
pub struct Dialog {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Dialog {
    /// Starts it for members of a group at the wire's end; of a new one by -1.
    ///
    /// # Errors
    /// When it can't be built or started.
    pub fn start(wire: &Wire, group: impl Into<i32>) -> Result<Self> {
        Self::behind(wire, group, &[])
    }

    /// The same behind a command that starts it, such as one that takes privileges away.
    ///
    /// # Errors
    /// As [`Dialog::start`].
    pub fn behind(wire: &Wire, group: impl Into<i32>, before: &[&str]) -> Result<Self> {
        Self::of(wire, "steered", group, before)
    }

    /// The same with another program that is started as `c/steered.c` is.
    ///
    /// # Errors
    /// As [`Dialog::start`].
    pub fn of(wire: &Wire, name: &str, group: impl Into<i32>, before: &[&str]) -> Result<Self> {
        // Built anew, it would be another program to the library.
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

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    ///
    /// # Errors
    /// When it ends instead.
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

    /// Says a line, whose answer is to be heard.
    ///
    /// # Errors
    /// When it has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.to, "{line}")?)
    }

    /// Says a line and returns the answer.
    ///
    /// # Errors
    /// When there is none.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        self.tell(line)?;
        self.hear()
    }

    /// Says a line that is to be answered so.
    ///
    /// # Errors
    /// When it isn't.
    pub fn expect(&mut self, line: &str, answer: &str) -> Result<()> {
        let said = self.ask(line)?;
        ensure!(said == answer, "{line:?}: not {answer:?} but {said:?}");
        Ok(())
    }

    /// Opens a handle under a program, beside other programs.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn open_beside(&mut self, program: &str) -> Result<()> {
        let mut said = self.ask(&format!("open {program}"))?;
        if said.starts_with("warned: ") {
            said = self.hear()?;
        }
        ensure!(said.starts_with("opened "), "{said}");
        Ok(())
    }

    /// The packets that a handle has got so far.
    ///
    /// # Errors
    /// When it doesn't say.
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
