//! The help of `fanpcap`: the subcommands in five groups, each with an example.

use std::fmt::Write as _;

use clap::Command;

/// A group of subcommands.
struct Group {
    title: &'static str,
    verbs: &'static [&'static str],
    example: &'static str,
}

const GROUPS: [Group; 5] = [
    Group {
        title: "Capture",
        verbs: &["run", "serve", "poller", "capture"],
        example: "fanpcap run -n 4 -- tcpdump -n -i eth0 -w %i.pcap",
    },
    Group {
        title: "Look",
        verbs: &["top", "group", "doctor", "metrics"],
        example: "fanpcap top",
    },
    Group {
        title: "Set up",
        verbs: &["enable", "disable", "config", "lang", "tune"],
        example: "fanpcap enable --system",
    },
    Group {
        title: "Cluster",
        verbs: &["cluster", "node", "coordinator", "analyzer"],
        example: "fanpcap cluster status",
    },
    Group {
        title: "Test",
        verbs: &["verify", "gen", "bench"],
        example: "fanpcap verify eth0 -n 4 --generate eth1",
    },
];

/// The command with a help text that has its subcommands in groups.
pub(crate) fn in_groups(command: Command) -> Command {
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for Group {
        title,
        verbs,
        example,
    } in GROUPS
    {
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n{title}:  {example}");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {verb:<11}  {about}");
        }
    }
    text += "\nOptions:\n{options}\n\n'fanpcap help COMMAND' has the options of a command.\n";
    command.help_template(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_subcommand_is_in_one_group_and_the_help_fits_a_terminal() {
        let mut command = crate::command();
        let help = command.render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for verb in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let start = format!("  {:<11}  ", verb.get_name());
            let found = help.lines().filter(|line| line.starts_with(&start));
            let is_shown = usize::from(verb.get_name() != "help");
            assert_eq!(found.count(), is_shown, "{}", verb.get_name());
        }
    }
}
