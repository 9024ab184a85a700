//! A terminal with a shell, made by script(1). Everything written to it is recorded with its time.

use std::io::{Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use vt100::Parser;

pub(super) const COLUMNS: u16 = 100;
/// The pause between two typed characters.
const TYPING: Duration = Duration::from_millis(20);
/// The pause before a line is entered, so that viewers can read it.
const READING: Duration = Duration::from_millis(700);

/// The bytes that were written to a terminal at some time.
type Written = Vec<(Duration, Vec<u8>)>;

/// A running terminal.
pub(super) struct Terminal {
    title: &'static str,
    rows: u16,
    script: Child,
    keys: ChildStdin,
    written: Arc<Mutex<Written>>,
}

/// The record of a terminal.
pub(super) struct Record {
    pub(super) title: &'static str,
    pub(super) rows: u16,
    pub(super) written: Written,
}

impl Terminal {
    /// Starts a shell in `directory`, on a host with the name `sensor`. Times count from `began`.
    pub(super) fn open(
        title: &'static str,
        rows: u16,
        directory: &Path,
        path: &str,
        began: Instant,
    ) -> Result<Self> {
        let shell = format!(
            "echo sensor >/proc/sys/kernel/hostname; stty rows {rows} cols {COLUMNS}; \
             exec bash --norc --noprofile -i"
        );
        let mut script = Command::new("unshare")
            .args(["--uts", "script", "-qfc", &shell, "/dev/null"])
            .current_dir(directory)
            .env("PATH", path)
            .env("PS1", "# ")
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .env_remove("HISTFILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare(1) and script(1), of util-linux and bsdutils")?;
        let keys = script.stdin.take().context("its keys")?;
        let mut output = script.stdout.take().context("its screen")?;
        let written = Arc::new(Mutex::new(Written::new()));
        let recorded = Arc::clone(&written);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                recorded.push((began.elapsed(), bytes[..length].to_vec()));
            }
        });
        let terminal = Self {
            title,
            rows,
            script,
            keys,
            written,
        };
        terminal.wait_for("#")?;
        Ok(terminal)
    }

    /// Types a command, and enters it after a pause.
    pub(super) fn enter(&mut self, line: &str) -> Result<()> {
        for key in line.chars() {
            self.press(&key.to_string())?;
            thread::sleep(TYPING);
        }
        thread::sleep(READING);
        self.press("\r")
    }

    /// Sends the bytes of keys.
    pub(super) fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes())?;
        Ok(self.keys.flush()?)
    }

    /// Waits until the screen shows `text`.
    pub(super) fn wait_for(&self, text: &str) -> Result<()> {
        await_for(&format!("{text:?} on {}", self.title), LIMIT, || {
            let mut screen = emulator(self.rows);
            for (_, bytes) in self.record().written {
                screen.process(&bytes);
            }
            Ok(screen.screen().contents().contains(text).then_some(()))
        })
    }

    fn record(&self) -> Record {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        Record {
            title: self.title,
            rows: self.rows,
            written: written.clone(),
        }
    }

    /// Ends the shell, and returns what the terminal showed until now.
    pub(super) fn close(mut self) -> Result<Record> {
        let record = self.record();
        self.script.kill()?;
        self.script.wait()?;
        Ok(record)
    }
}

/// An emulated terminal that has shown nothing yet.
pub(super) fn emulator(rows: u16) -> Parser {
    let size = |size| NonZero::new(size).expect("a terminal with rows and columns");
    Parser::new(size(rows), size(COLUMNS), 0)
}
