//! Picks the two CPUs of the bench. They are of different cores, if possible.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::cpu::cpus;

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
            _ => Err("give two different CPUs, such as 0,1".to_owned()),
        }
    }
}

impl Pair {
    /// The requested CPUs, or else the first CPU and the next CPU of another core. If all CPUs are
    /// of one core, the first two CPUs.
    pub(crate) fn choose(asked: Option<Self>) -> Result<Self> {
        let cpus = cpus()?;
        if let Some(pair) = asked {
            for cpu in [pair.generator, pair.reader] {
                ensure!(cpus.contains(&cpu), "CPU {cpu} may not be used: {cpus:?}");
            }
            return Ok(pair);
        }
        Self::among(&cpus, core)
            .context("the bench needs two CPUs, for generator and reader; it may use only one")
    }

    fn among(cpus: &[usize], core: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let (&generator, others) = cpus.split_first()?;
        let own = core(generator);
        let apart = others
            .iter()
            .find(|&&cpu| own.is_none() || core(cpu) != own);
        let reader = *apart.or(others.first())?;
        Some(Self { generator, reader })
    }

    /// The CPUs in words, and whether they share a core.
    pub(crate) fn describe(self) -> String {
        let relation = match (core(self.generator), core(self.reader)) {
            (Some(one), Some(other)) if one == other => "hyper-threads of one core",
            (Some(_), Some(_)) => "not of one core",
            _ => "topology unknown",
        };
        format!("{self} ({relation})")
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.generator, self.reader)
    }
}

/// The core of a CPU; `None` if sysfs does not list the CPU.
fn core(cpu: usize) -> Option<usize> {
    let mut all = fanpcap_nic::machine::cpus().into_iter();
    all.find(|it| it.number == cpu).map(|it| it.core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_avoided_where_that_can_be() {
        let neighbours = |cpu: usize| Some(cpu / 2);
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
