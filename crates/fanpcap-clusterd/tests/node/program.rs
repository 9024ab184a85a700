//! Programs that run together with the nodes: analyzers, and collectors of other projects.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use serde_json::Value;

use crate::stage::Stage;

/// A running program, whose output is in files.
pub(crate) struct Program {
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Program {
    /// Starts the program, whose output goes to files in `dir`.
    pub(crate) fn start(command: &mut Command, dir: &Path, name: &str) -> Result<Self> {
        let file = |end| dir.join(format!("{name}.{end}"));
        let (out, log) = (file("out"), file("log"));
        command.stdin(Stdio::null()).stdout(File::create(&out)?);
        let child = command.stderr(File::create(&log)?).spawn();
        let child = child.with_context(|| format!("starting {name}"))?;
        Ok(Self { child, out, log })
    }

    /// Starts an analyzer of the stage's cluster, with these options.
    pub(crate) fn analyzer(stage: &Stage, options: &[&str]) -> Result<Self> {
        let config = stage.scratch.file("cluster.conf");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
        command.args(["analyzer", "--json", "--config"]);
        command.arg(&config).args(options);
        let dir = config.parent().context("a directory")?;
        Self::start(&mut command, dir, "analyzer")
    }

    /// Fails if the program has ended.
    pub(crate) fn ensure_runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let (log, out) = self.printed()?;
            anyhow::bail!("ended by itself ({status}): {log}{out}");
        }
        Ok(())
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", signal, &pid]).status()?;
        ensure!(done.success(), "kill -s {signal} {pid}");
        Ok(())
    }

    /// Ends the program by a signal. Returns its standard error and its standard output.
    pub(crate) fn stop(mut self, signal: &str) -> Result<(String, String)> {
        self.signal(signal)?;
        await_for("the program's end", LIMIT, || Ok(self.child.try_wait()?))?;
        self.printed()
    }

    fn printed(&self) -> Result<(String, String)> {
        let text = |path| Ok::<_, anyhow::Error>(fs::read_to_string(path)?);
        Ok((text(&self.log)?, text(&self.out)?))
    }

    /// Waits until the program has printed `text` on standard error.
    pub(crate) fn await_output(&self, text: &str) -> Result<()> {
        let said = || fs::read_to_string(&self.log).unwrap_or_default();
        let wait = await_for("its words", LIMIT, || {
            Ok(said().contains(text).then_some(()))
        });
        wait.with_context(|| format!("{text:?} in: {}", said()))
    }

    /// Waits until `is_so` returns `true` for an analyzer's state. Returns this state.
    pub(crate) fn await_state(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let wait = await_for(what, LIMIT, || {
            let text = fs::read_to_string(&self.out)?;
            if let Some(line) = text.lines().last() {
                last = serde_json::from_str(line).unwrap_or_default();
            }
            Ok(is_so(&last).then(|| last.clone()))
        });
        let log = fs::read_to_string(&self.log)?;
        wait.with_context(|| format!("{last}; {log}"))
    }

    /// Waits until an analyzer has delivered `count` packets.
    pub(crate) fn await_delivered(&self, count: u64) -> Result<()> {
        let wait = self.await_state("the packets", |state| state["delivered"] == count);
        wait.with_context(|| format!("{count} packets")).map(drop)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // This fails if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
