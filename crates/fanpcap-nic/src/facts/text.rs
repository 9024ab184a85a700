//! Facts as text, one fact a line. Tests and reports record machines in this form.

use super::Facts;
use crate::channels::{self, Channels};
use crate::interrupts::{Affinity, Interrupt, names};
use crate::knob::Knob;
use crate::machine::Cpu;
use fanpcap_linux::ethtool::Rings;
use fanpcap_linux::process::cpu;
use std::fmt::Write as _;

/// The error for a line that is not a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFact {
    /// The line's number, from 1 on.
    pub line: usize,
}

impl Facts {
    /// The facts as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let (major, minor) = self.kernel;
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "device {}\ndriver {}\nkernel {major}.{minor}\nmissed {}\n",
            self.device, self.driver, self.missed
        );
        for (word, is_so) in self.words() {
            if is_so {
                let _ = writeln!(text, "{word}");
            }
        }
        let node = self.node.map(|node| ("node", node));
        let napis = self.napis.map(|napis| ("napis", napis));
        let irqbalance = self.irqbalance.map(|pid| ("irqbalance", pid as usize));
        for (word, number) in [node, napis, irqbalance].into_iter().flatten() {
            let _ = writeln!(text, "{word} {number}");
        }
        if let Some(channels) = self.channels {
            let most = channels::list_text(channels::KINDS, channels.most);
            let _ = writeln!(text, "channels {} {most}", channels::text(channels));
        }
        if let Some(Rings { rx, tx, most }) = self.rings {
            let _ = writeln!(text, "rings {rx} {tx} {} {}", most[0], most[1]);
        }
        for (interrupt, affinity) in &self.interrupts {
            let asked = cpu::list_text(&affinity.asked);
            let effective = cpu::list_text(&affinity.effective);
            let Interrupt { number, name, .. } = interrupt;
            let _ = writeln!(text, "interrupt {number} {name} {asked} {effective}");
        }
        for (knob, value) in &self.values {
            let _ = writeln!(text, "value {knob} {value}");
        }
        for name in &self.fixed {
            let _ = writeln!(text, "fixed {name}");
        }
        for cpu in &self.cpus {
            let isolated = if cpu.is_isolated { " isolated" } else { "" };
            let Cpu {
                number, core, node, ..
            } = cpu;
            let _ = writeln!(text, "cpu {number} {core} {node}{isolated}");
        }
        let _ = writeln!(text, "allowed {}", cpu::list_text(&self.allowed));
        for (word, cpus) in [("taken", &self.taken), ("placed", &self.placed)] {
            if !cpus.is_empty() {
                let _ = writeln!(text, "{word} {}", cpu::list_text(cpus));
            }
        }
        text
    }

    fn words(&self) -> [(&'static str, bool); 4] {
        [
            ("up", self.is_up),
            ("default-route", self.has_default_route),
            ("address", self.has_address),
            ("planned-channels", self.has_planned_channels),
        ]
    }

    /// Reads facts; `#` begins a comment.
    ///
    /// # Errors
    /// [`NoFact`].
    pub fn parse(text: &str) -> Result<Self, NoFact> {
        let mut facts = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            if !line.trim().is_empty() {
                let read = facts.read(&line.split_whitespace().collect::<Vec<_>>());
                read.ok_or(NoFact { line: number + 1 })?;
            }
        }
        Ok(facts)
    }

    fn read(&mut self, words: &[&str]) -> Option<()> {
        match words {
            ["device", name] => self.device = (*name).to_owned(),
            ["driver"] => self.driver = String::new(),
            ["driver", name] => self.driver = (*name).to_owned(),
            ["kernel", version] => {
                let (major, minor) = version.split_once('.')?;
                self.kernel = (major.parse().ok()?, minor.parse().ok()?);
            }
            ["missed", number] => self.missed = number.parse().ok()?,
            ["up"] => self.is_up = true,
            ["default-route"] => self.has_default_route = true,
            ["address"] => self.has_address = true,
            ["planned-channels"] => self.has_planned_channels = true,
            ["node", number] => self.node = Some(number.parse().ok()?),
            ["napis", number] => self.napis = Some(number.parse().ok()?),
            ["irqbalance", pid] => self.irqbalance = Some(pid.parse().ok()?),
            ["channels", now, most] => self.channels = Some(read_channels(now, most)?),
            ["rings", numbers @ ..] => self.rings = Some(read_rings(numbers)?),
            ["interrupt", number, name, asked, effective] => {
                let interrupt = Interrupt {
                    number: number.parse().ok()?,
                    name: (*name).to_owned(),
                    serves: names::serves(name, &self.device),
                };
                let affinity = Affinity {
                    asked: cpu::list(asked)?,
                    effective: cpu::list(effective)?,
                };
                self.interrupts.push((interrupt, affinity));
            }
            ["value", knob, value @ ..] => {
                let value = value.first().copied().unwrap_or_default();
                self.values.insert(Knob::parse(knob)?, value.to_owned());
            }
            ["fixed", name] => self.fixed.push((*name).to_owned()),
            ["cpu", number, core, node, isolated @ ..] => self.cpus.push(Cpu {
                number: number.parse().ok()?,
                core: core.parse().ok()?,
                node: node.parse().ok()?,
                is_isolated: isolated == ["isolated"],
            }),
            ["allowed", list] => self.allowed = cpu::list(list)?,
            ["taken", list] => self.taken = cpu::list(list)?,
            ["placed", list] => self.placed = cpu::list(list)?,
            _ => return None,
        }
        Some(())
    }
}

fn read_channels(now: &str, most: &str) -> Option<Channels> {
    let numbers = |text| {
        let it = channels::parse(text)?;
        Some([it.rx?, it.tx?, it.other?, it.combined?])
    };
    let [rx, tx, other, combined] = numbers(now)?;
    Some(Channels {
        rx,
        tx,
        other,
        combined,
        most: numbers(most)?,
    })
}

fn read_rings(words: &[&str]) -> Option<Rings> {
    let numbers: Result<Vec<u32>, _> = words.iter().map(|word| word.parse()).collect();
    match numbers.ok()?.as_slice() {
        &[rx, tx, rx_most, tx_most] => Some(Rings {
            rx,
            tx,
            most: [rx_most, tx_most],
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    #[test]
    fn facts_are_read_as_they_are_written() {
        let facts = Facts::of(&Device::open("lo").unwrap());
        assert_eq!(facts.device, "lo");
        assert!(facts.is_up && facts.has_address && !facts.cpus.is_empty());
        assert_eq!(Facts::parse(&facts.text()), Ok(facts.clone()));
        let taken = Facts {
            taken: vec![0, 2, 3],
            placed: vec![1],
            has_planned_channels: true,
            ..facts
        };
        assert!(taken.text().contains("\ntaken 0,2-3\nplaced 1\n"));
        assert_eq!(Facts::parse(&taken.text()), Ok(taken));
    }

    #[test]
    fn a_line_that_is_no_fact_is_named() {
        assert_eq!(
            Facts::parse("device a\n# comment\nup\nfast\n"),
            Err(NoFact { line: 4 })
        );
        assert_eq!(Facts::parse("cpu 0 0\n"), Err(NoFact { line: 1 }));
    }
}
