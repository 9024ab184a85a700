//! `fanpcap complete`: candidates for the last word of a command line of `fanpcap` or of another
//! program.

use std::process::ExitCode;

use anyhow::Result;
use fanpcap_external::ExternalCommand;
pub(crate) use fanpcap_terminal::complete::Arguments;
use fanpcap_terminal::complete::print;

use crate::poller;

/// Runs `fanpcap complete`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let [first, more @ ..] = arguments.words.as_slice() {
        let external = ExternalCommand::of(first).filter(|_| !more.is_empty());
        if let Some(external) = external {
            return external.complete(more);
        }
    }
    let known = [(poller::PLACE, poller::places())];
    print(crate::command(), &arguments.words, &known)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use fanpcap_terminal::complete::{FILES, candidates};

    fn told(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let known = [(crate::poller::PLACE, crate::poller::places())];
        candidates(crate::command(), &words, &known)
    }

    #[test]
    fn each_word_has_what_belongs_there() {
        assert_eq!(told("ca"), ["capture"]);
        assert_eq!(told("capture --fanout ro"), ["rollover"]);
        assert_eq!(told("run --fanout fl"), ["flow"]);
        assert_eq!(told("top --sort drops"), ["drops"]);
        assert_eq!(told("top --js"), ["--json"]);
        for line in ["poller packet:l", "poller packet:a packet:l"] {
            assert!(told(line).contains(&"packet:lo".to_owned()), "{line}");
        }
        for line in [
            "top l",
            "top -i l",
            "verify l",
            "gen -i l",
            "capture --interface l",
            "config l",
            "metrics l",
            "run -i l",
        ] {
            assert!(
                told(line).contains(&"lo".to_owned()),
                "{line}: {:?}",
                told(line)
            );
        }
        assert_eq!(told("top lo l"), Vec::<String>::new());
        for line in [
            "lang check x",
            "gen --replay ",
            "run -- ",
            "run -n 4 tcpdump -n ",
            "run tcpdump -w",
            "capture --write ",
        ] {
            assert_eq!(told(line), [FILES], "{line}");
        }
    }

    #[test]
    fn what_is_hidden_is_not_offered() {
        for line in ["", "gen --", "lang "] {
            for hidden in ["complete", "generate"] {
                assert!(!told(line).contains(&hidden.to_owned()), "{line}: {hidden}");
            }
        }
    }
}
