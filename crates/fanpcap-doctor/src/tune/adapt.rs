//! `fanpcap tune DEV --adapt`: moves entries of the indirection table, so that the receive queues
//! have the same load.

mod counter;
mod levels;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use fanpcap_linux::wait::stop;
use fanpcap_nic::device::Device;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::journal::{Hold, Wish};
use fanpcap_nic::knob::{Knob, Knobs, Setting};
use fanpcap_nic::plan::Refusal;
use fanpcap_nic::settings::{self, Settings};
use fanpcap_terminal::streams::Reader;

use super::Arguments;
use super::put_back;
use super::text::{self, say};
use crate::flow::shown;
use counter::{Counter, Counts};
use levels::{Decision, Levels};

/// Which entries may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Which {
    /// Entries without live flows.
    Idle,
    /// All entries. The packets of flows that move may be reordered.
    All,
}

/// The minimum length of a round.
const ROUND: Duration = Duration::from_secs(1);
/// The maximum length of a round, even if few packets have come.
const ROUND_MAX: Duration = Duration::from_secs(10);

const TABLE: Knob = Knob::Setting(Setting::Table);

/// Adapts the table until a signal comes, and then restores the old table.
pub(super) fn run(
    device: &Device,
    facts: &Facts,
    which: Which,
    arguments: &Arguments,
) -> Result<ExitCode> {
    let name = &device.name;
    if facts.has_default_route && !arguments.force {
        bail!("{name}: {}", Refusal::DefaultRoute);
    }
    stop::on_signals().context("signals")?;
    let mut journal = put_back::journal(device)?;
    say(&text::undone(name, &journal.recover(&Settings(device))))?;
    let mut of_table = journal.changes().iter().filter(|it| it.knob == TABLE);
    if let Some(owner) = of_table.find_map(|it| it.owners.first()) {
        bail!(
            "{name}: process {} has set the indirection table and still needs it",
            owner.pid
        );
    }
    let mut adapting = Adapting::start(device, which)?;
    let hold = journal.hold()?;
    drop(journal);
    let done = adapting.rounds(&hold, arguments.rounds);
    let undone = put_back::journal(device)?.release(&Settings(device), hold);
    say(&text::undone(name, &undone))?;
    done.map(|()| ExitCode::SUCCESS)
}

/// A device whose table is being adapted.
struct Adapting<'a> {
    device: &'a Device,
    /// The table as it was last set.
    table: Vec<u32>,
    levels: Levels,
    counter: Counter,
}

impl<'a> Adapting<'a> {
    fn start(device: &'a Device, which: Which) -> Result<Self> {
        let name = &device.name;
        let table = table(device)?;
        let passes_hash = Settings(device).read(&Setting::Feature(HASHING.to_owned()).into());
        ensure!(
            !passes_hash.is_ok_and(|value| value == "off"),
            "{name}: its driver passes on no hash, and without the hash --adapt can't count packets: 'ethtool -K \
             {name} receive-hashing on'"
        );
        let levels = Levels::new(&table, which == Which::All);
        ensure!(
            levels.enough() > levels::PACKETS_MIN,
            "{name}: its indirection table has only one queue"
        );
        let counter = Counter::start(device.ifindex, table.len(), levels.queues());
        Ok(Self {
            device,
            levels,
            counter: counter.map_err(|error| error.context(name.clone()))?,
            table,
        })
    }

    fn rounds(&mut self, hold: &Hold, rounds: Option<u32>) -> Result<()> {
        for number in 1..=rounds.unwrap_or(u32::MAX) {
            let Some(counts) = self.round()? else {
                break;
            };
            self.ensure_own()?;
            let decision = self.levels.round(&self.table, &counts);
            self.set(hold, &decision)?;
            self.counter.next_round(&counts);
            let name = &self.device.name;
            let reader = say(&format!("{name}: {}", decision.text(number)))?;
            if reader == Reader::Gone {
                break;
            }
            for &entry in &decision.elephants {
                let flow = self.flow_of(entry)?;
                let line = decision.elephant(entry, &counts, &flow);
                say(&format!("{name}: {line}"))?;
            }
        }
        Ok(())
    }

    /// Waits until enough packets have come for a decision. `None` if a signal ends the command.
    fn round(&self) -> Result<Option<Counts>> {
        let end = Instant::now() + ROUND_MAX;
        loop {
            if stop::wait(ROUND).context("waiting")? {
                return Ok(None);
            }
            let counts = self.counter.since_last()?;
            if counts.packets() >= self.levels.enough() || Instant::now() >= end {
                return Ok(Some(counts));
            }
        }
    }

    /// Checks that the device still has the table that was last set.
    fn ensure_own(&self) -> Result<()> {
        ensure!(
            table(self.device)? == self.table,
            "{}: somebody else has changed the indirection table",
            self.device.name
        );
        Ok(())
    }

    fn set(&mut self, hold: &Hold, decision: &Decision) -> Result<()> {
        if decision.moves.is_empty() {
            return Ok(());
        }
        let name = &self.device.name;
        let failed = |error| anyhow!("{name}: {TABLE}: {error}");
        let wanted = settings::table_text(&decision.table);
        let mut journal = put_back::journal(self.device)?;
        // The table may have changed during the wait for the journal's lock.
        self.ensure_own()?;
        let settings = Settings(self.device);
        let set = journal.set(&settings, Wish::While(hold), &TABLE, &wanted);
        set.map_err(failed)?;
        journal.fold(hold, &TABLE).map_err(failed)?;
        self.table.clone_from(&decision.table);
        Ok(())
    }

    /// The flow with most of an entry's packets, as text.
    fn flow_of(&self, entry: usize) -> Result<String> {
        Ok(match self.counter.most_of(entry)? {
            None => "packets without a flow".to_owned(),
            Some(most) if most.share < 50 => "many flows".to_owned(),
            Some(most) => shown(&most.flow),
        })
    }
}

/// The queue of each entry.
fn table(device: &Device) -> Result<Vec<u32>> {
    let text = Settings(device).read(&TABLE);
    let name = &device.name;
    let text = text.with_context(|| {
        format!("{name}: --adapt needs an indirection table, which 'ethtool -x {name}' shows")
    })?;
    Ok(settings::table(&text)?)
}

/// The kernel's name for the feature that ethtool calls receive-hashing.
const HASHING: &str = "rx-hashing";
