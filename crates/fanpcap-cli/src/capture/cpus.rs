//! Which CPU each thread runs on.

use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};
use fanpcap_linux::inject;

/// What `--cpus` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cpus {
    /// The kernel decides.
    None,
    /// Each thread has one of those that the process may run on, CPU 0 the last.
    Auto,
    /// These, in turn.
    List(Vec<usize>),
}

impl Cpus {
    /// The CPU of each of `threads` threads, none where the kernel decides. With fewer CPUs than threads
    /// some share one.
    pub(super) fn choose(&self, threads: u16) -> Result<Vec<Option<usize>>> {
        let cpus = match self {
            Self::None => return Ok(vec![None; threads.into()]),
            Self::Auto => last_zero(inject::cpus().context("the CPUs to run on")?),
            Self::List(cpus) => cpus.clone(),
        };
        let each = cpus.into_iter().cycle().map(Some);
        Ok(each.take(threads.into()).collect())
    }
}

/// CPU 0 has the most interrupts on most machines.
fn last_zero(cpus: Vec<usize>) -> Vec<usize> {
    let (zero, mut rest): (Vec<_>, Vec<_>) = cpus.into_iter().partition(|&cpu| cpu == 0);
    rest.extend(zero);
    rest
}

impl FromStr for Cpus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            list => {
                let mut cpus = Vec::new();
                for range in list.split(',') {
                    cpus.extend(parse_range(range).with_context(|| {
                        format!("'{range}': write auto, none, or numbers and ranges such as 2,4-7")
                    })?);
                }
                Ok(Self::List(cpus))
            }
        }
    }
}

fn parse_range(range: &str) -> Result<std::ops::RangeInclusive<usize>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (first.parse()?, last.parse()?);
    ensure!(first <= last && last < 1 << 16, "no such range of CPUs");
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ranges() {
        assert_eq!(
            "2,4-6".parse::<Cpus>().unwrap(),
            Cpus::List(vec![2, 4, 5, 6])
        );
        for wrong in ["", "3-", "-3", "5-4", "a", "1,,2", "0-99999999"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn threads_take_the_cpus_in_turn() {
        let listed = Cpus::List(vec![5, 3]).choose(3).unwrap();
        assert_eq!(listed, [Some(5), Some(3), Some(5)]);
        assert_eq!(Cpus::None.choose(2).unwrap(), [None, None]);
        assert_eq!(last_zero(vec![0, 1, 2]), [1, 2, 0]);
    }
}
