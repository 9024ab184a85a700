//! Picks the CPUs of the bench: two that do not share a core, if possible.

use std::fmt;
use std::fs;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::cpu;
use fanpcap_testkit::cpus;

/// Two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) generator: usize,
    pub(crate) reader: usize,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(',').and_then(|(generator, reader)| {
            let number = |text: &str| text.trim().parse().ok();
            Some((number(generator)?, number(reader)?))
        });
        match numbers {
            Some((generator, reader)) if generator != reader => Ok(Self { generator, reader }),
            _ => Err("two different CPUs are wanted, such as 0,1".to_owned()),
        }
    }
}

impl Pair {
    /// The requested CPUs; else the first one and the next one that is not its sibling.
    pub(crate) fn choose(asked: Option<Self>) -> Result<Self> {
        let cpus = cpus()?;
        if let Some(pair) = asked {
            for cpu in [pair.generator, pair.reader] {
                ensure!(cpus.contains(&cpu), "CPU {cpu} may not be used: {cpus:?}");
            }
            return Ok(pair);
        }
        let siblings = |cpu| siblings(cpu).unwrap_or_default();
        Self::among(&cpus, siblings)
            .context("this needs two CPUs, for the generator and the reader; here is one")
    }

    fn among(cpus: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Option<Self> {
        let (&generator, others) = cpus.split_first()?;
        let shared = siblings(generator);
        let apart = others.iter().find(|cpu| !shared.contains(cpu));
        let reader = *apart.or(others.first())?;
        Some(Self { generator, reader })
    }

    /// Text: the CPUs, and whether they share a core.
    pub(crate) fn describe(self) -> String {
        let relation = match siblings(self.generator) {
            Ok(shared) if shared.contains(&self.reader) => "hyper-threads of one core",
            Ok(_) => "not of one core",
            Err(_) => "topology unknown",
        };
        format!("{self} ({relation})")
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.generator, self.reader)
    }
}

/// The CPUs of a CPU's core, itself included (`thread_siblings_list`, the kernel's
/// admin-guide/cputopology.rst).
fn siblings(cpu: usize) -> Result<Vec<usize>> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    cpu::list(text.trim()).with_context(|| format!("no list of CPUs: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_avoided_where_that_can_be() {
        let neighbours = |cpu: usize| vec![cpu & !1, cpu | 1];
        let pair = |cpus: &[usize]| Pair::among(cpus, neighbours).map(|p| (p.generator, p.reader));
        assert_eq!(pair(&[0, 1, 2, 3]), Some((0, 2)));
        assert_eq!(pair(&[0, 1]), Some((0, 1)));
        assert_eq!(pair(&[1, 4]), Some((1, 4)));
        assert_eq!(pair(&[0]), None);
    }

    #[test]
    fn pairs_are_read() {
        let pair: Pair = "4,1".parse().unwrap();
        assert_eq!((pair.generator, pair.reader), (4, 1));
        for wrong in ["1", "1,1", "a,b", "1,2,3"] {
            assert!(wrong.parse::<Pair>().is_err(), "{wrong}");
        }
    }
}
