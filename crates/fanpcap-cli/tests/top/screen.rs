//! The screen of `fanpcap top` in a terminal that script(1) creates.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{Scratch, await_for, member};

/// The sequences that restore a terminal: they bring back its main screen, its cursor, and its line
/// wrapping.
const RESTORED: [&str; 3] = ["\u{1b}[?1049l", "\u{1b}[?25h", "\u{1b}[?7h"];

const ROWS: usize = 24;
const COLUMNS: usize = 80;

/// A terminal in which `fanpcap top` runs.
pub(crate) struct Screen {
    script: Child,
    keys: Option<ChildStdin>,
    drawn: PathBuf,
    pid: u32,
}

impl Screen {
    /// Starts `fanpcap top` on a device.
    pub(crate) fn open(scratch: &Scratch, device: &str) -> Result<Self> {
        let (pid_file, drawn) = (scratch.new_file("pid"), scratch.new_file("drawn"));
        let command = format!(
            "stty rows {ROWS} cols {COLUMNS}; echo $$ >{}; exec {} top {device} --interval 0.2",
            pid_file.display(),
            env!("CARGO_BIN_EXE_fanpcap"),
        );
        let mut script = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(File::create(&drawn)?)
            .spawn()
            .context("script(1), of the package bsdutils")?;
        let pid = await_for("the screen's process", LIMIT, || {
            let text = fs::read_to_string(&pid_file).unwrap_or_default();
            Ok(text.strip_suffix('\n').and_then(|pid| pid.parse().ok()))
        })?;
        Ok(Self {
            keys: script.stdin.take(),
            script,
            drawn,
            pid,
        })
    }

    /// The process of `fanpcap top`.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The lines that the terminal shows.
    pub(crate) fn lines(&self) -> Result<Vec<String>> {
        Ok(shown(&self.written()?))
    }

    /// Waits until a line contains `text`.
    pub(crate) fn wait_for(&self, text: &str) -> Result<()> {
        await_for(&format!("{text:?} on the screen"), LIMIT, || {
            let found = self.lines()?.iter().any(|line| line.contains(text));
            Ok(found.then_some(()))
        })
        .with_context(|| self.lines().unwrap_or_default().join("\n"))
    }

    /// Types `keys`.
    pub(crate) fn press(&mut self, keys: &str) -> Result<()> {
        let terminal = self.keys.as_mut().context("its keys")?;
        terminal.write_all(keys.as_bytes())?;
        Ok(terminal.flush()?)
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&self, rows: usize, columns: usize) -> Result<()> {
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        let done = stty
            .stdin(File::open(format!("/proc/{}/fd/0", self.pid))?)
            .status()?;
        ensure!(done.success(), "stty: {done}");
        Ok(())
    }

    /// The number of times that a text was written to the terminal.
    pub(crate) fn times_written(&self, text: &str) -> Result<usize> {
        Ok(self.written()?.matches(text).count())
    }

    /// Whether the terminal was restored.
    pub(crate) fn has_been_left(&self) -> Result<bool> {
        let written = self.written()?;
        Ok(RESTORED.iter().all(|sequence| written.contains(sequence)))
    }

    /// Waits until the process ends. Returns its exit status, and whether the terminal was
    /// restored.
    pub(crate) fn end(mut self) -> Result<(Option<i32>, bool)> {
        let what = "the end of the screen";
        let status = await_for(what, LIMIT, || Ok(self.script.try_wait()?))?;
        Ok((status.code(), self.has_been_left()?))
    }

    /// Closes the terminal and waits until the process has ended.
    pub(crate) fn hang_up(mut self) -> Result<()> {
        self.script.kill()?;
        self.script.wait()?;
        await_for("the end of what has no terminal", LIMIT, || {
            Ok((!self.runs()).then_some(()))
        })
    }

    /// Whether the process still runs.
    fn runs(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| stat.contains("(fanpcap) ") && !stat.contains(") Z "))
    }

    fn written(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.drawn)?).into_owned())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Ignore errors: these calls fail if script(1) has ended.
        let _ = self.script.kill();
        let _ = self.script.wait();
        if self.runs() {
            let _ = member::signal(self.pid, "KILL");
        }
    }
}

/// The lines that a terminal shows after this text was written to it. Letters appear at the cursor.
/// `ESC [ row ; column H` moves the cursor, and `ESC [ K` erases the rest of the row. All other
/// sequences set colours and modes, so they are skipped.
fn shown(written: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let mut letters = written.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            if let Some(cell) = cells
                .get_mut(row)
                .and_then(|row: &mut Vec<char>| row.get_mut(column))
            {
                *cell = letter;
            }
            column += 1;
        } else if letters.next() == Some('[') {
            let mut parameters = String::new();
            let end = letters.by_ref().find(|&letter| {
                parameters.push(letter);
                letter.is_ascii_alphabetic()
            });
            if end == Some('H') {
                let place = parameters.trim_end_matches('H').split_once(';');
                let number = |text: &str| text.parse::<usize>().unwrap_or(1).saturating_sub(1);
                (row, column) = place.map_or((0, 0), |(row, column)| (number(row), number(column)));
            } else if end == Some('K') {
                let rest = cells.get_mut(row).and_then(|row| row.get_mut(column..));
                rest.into_iter().for_each(|rest| rest.fill(' '));
            }
        }
    }
    cells.into_iter().map(String::from_iter).collect()
}
