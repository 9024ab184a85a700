//! Writes the manual pages of the command and of the steering language, as `make` stages them.
#![forbid(unsafe_code)]

mod examples;
mod language;

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

/// The directory of the hand-written sections beyond the options: `PAGE.in`.
const SECTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man");
/// Pages of other manual sections to which every page refers.
const RELATED: [(&str, &str); 4] = [
    ("pcap.conf", "5"),
    ("cluster.conf", "5"),
    ("fanpcap-lang", "7"),
    ("pcap_fanout", "3PCAP"),
];

fn main() -> Result<()> {
    let directory = env::args_os().nth(1);
    let manual = PathBuf::from(directory.context("usage: fanpcap-manual DIRECTORY")?);
    let pages = pages(&command());
    let names: Vec<String> = pages.iter().map(name).collect();
    for page in &pages {
        let path = manual.join(format!("man1/{}.1", name(page)));
        write(&path, &rendered(page, &names)?)?;
    }
    let path = manual.join("man7/fanpcap-lang.7");
    write(&path, language::page().as_bytes())
}

/// The command. Subcommands that are separate programs have the options of these programs.
fn command() -> Command {
    let mut command = fanpcap_cli::command();
    let all = command.get_subcommands();
    let names: Vec<String> = all.map(|it| it.get_name().to_owned()).collect();
    for name in names {
        // clap moves a changed subcommand to the end. To keep the order of the subcommands, the
        // loop changes all of them.
        command = command.mut_subcommand(&name, |own| match name.as_str() {
            "bench" | "node" | "coordinator" | "analyzer" | "cluster" => outside(&name, own),
            _ => own,
        });
    }
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

/// The command line of the program for subcommand `name`, which replaces `own`.
#[cfg(feature = "all")]
fn outside(name: &str, own: Command) -> Command {
    let order = own.get_display_order();
    let program = match name {
        "bench" => fanpcap_bench::command().name("bench"),
        _ => fanpcap_clusterd::command()
            .find_subcommand(name)
            .cloned()
            .unwrap_or(own),
    };
    program.display_order(order)
}

/// Without the feature `all` the subcommand's program is not linked, so the subcommand has no page.
#[cfg(not(feature = "all"))]
fn outside(_: &str, own: Command) -> Command {
    own.hide(true)
}

/// The command, its visible subcommands and their subcommands: one page each.
fn pages(command: &Command) -> Vec<Command> {
    let all = command.get_subcommands();
    let visible = all.filter(|it| !it.is_hide_set() && it.get_name() != "help");
    let below = visible.flat_map(pages);
    [command.clone()].into_iter().chain(below).collect()
}

/// A page's name: fanpcap, or fanpcap-NAME.
fn name(page: &Command) -> String {
    page.get_display_name()
        .unwrap_or_else(|| page.get_name())
        .to_owned()
}

fn rendered(page: &Command, names: &[String]) -> Result<Vec<u8>> {
    let own = name(page);
    // Without a date, man would print the source where the date belongs.
    let man = Man::new(page.clone())
        .date("2026")
        .source(concat!("fanpcap ", env!("CARGO_PKG_VERSION")))
        .manual("fanpcap");
    let mut text = Vec::new();
    man.render(&mut text)
        .with_context(|| format!("the page {own}"))?;
    // The section after the options gets our title instead of clap_mangen's.
    let title = match own.as_str() {
        "fanpcap-lang-explain" => "OUTPUT",
        _ => "FIGURES",
    };
    let text = String::from_utf8_lossy(&text).replace(".SH EXTRA\n", &format!(".SH {title}\n"));
    let mut text = with_values(page, &text).into_bytes();
    let section = Path::new(SECTIONS).join(format!("{own}.in"));
    if section.exists() {
        let reading = || format!("reading {}", section.display());
        text.extend(fs::read(&section).with_context(reading)?);
    }
    text.extend(examples::section(&own).unwrap_or_default().bytes());
    writeln!(text, "{}", see_also(&own, names))?;
    Ok(text)
}

/// Adds the options' values to the synopsis, as in `[--interval SECONDS]`: clap_mangen leaves the
/// values out.
fn with_values(page: &Command, text: &str) -> String {
    let Some(begin) = text.find("\n.SH SYNOPSIS\n") else {
        return text.to_owned();
    };
    let length = text[begin + 1..].find("\n.SH DESCRIPTION");
    let end = length.map_or(text.len(), |length| begin + 1 + length);
    let mut synopsis = text[begin..end].to_owned();
    for option in page.get_arguments().filter(|it| !it.is_positional()) {
        let takes_values = option.get_action().takes_values();
        let (Some(long), true) = (option.get_long(), takes_values) else {
            continue;
        };
        let names = option.get_value_names().unwrap_or_default().join(" ");
        let bold = format!("\\fB\\-\\-{}\\fR", long.replace('-', "\\-"));
        synopsis = synopsis.replacen(&bold, &format!("{bold} \\fI{names}\\fR"), 1);
    }
    format!("{}{synopsis}{}", &text[..begin], &text[end..])
}

/// The last section, which refers to all other pages.
fn see_also(own: &str, names: &[String]) -> String {
    let others = names
        .iter()
        .map(|name| (name.as_str(), "1"))
        .filter(|(name, _)| *name != own);
    let lines: Vec<String> = others
        .chain(RELATED)
        .map(|(name, section)| format!(".BR {} ({section})", name.replace('-', "\\-")))
        .collect();
    format!(".SH \"SEE ALSO\"\n{}", lines.join(",\n"))
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    let directory = path.parent().context("a file in a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(String, String)> {
        let pages = pages(&command());
        let names: Vec<String> = pages.iter().map(name).collect();
        let text = |page| String::from_utf8(rendered(page, &names).unwrap()).unwrap();
        pages.iter().map(|page| (name(page), text(page))).collect()
    }

    #[test]
    fn every_visible_subcommand_has_a_page_and_the_hidden_have_none() {
        let names: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
        for name in [
            "fanpcap",
            "fanpcap-run",
            "fanpcap-bench",
            "fanpcap-node",
            "fanpcap-cluster-check",
            "fanpcap-cluster-drain",
            "fanpcap-enable",
            "fanpcap-lang",
            "fanpcap-lang-try",
        ] {
            assert!(names.iter().any(|page| page == name), "{name}: {names:?}");
        }
        for hidden in ["complete", "help", "generate"] {
            assert!(
                !names.iter().any(|page| page.contains(hidden)),
                "{hidden}: {names:?}"
            );
        }
    }

    #[test]
    fn every_page_has_examples_and_no_section_without_a_name_of_its_own() {
        for (name, text) in all() {
            assert_eq!(text.matches("\n.SH EXAMPLES\n").count(), 1, "{name}");
            assert!(!text.contains(".SH EXTRA"), "{name}");
            assert!(
                !text.contains(".SH FIGURES") || text.contains("Figures:"),
                "{name}"
            );
        }
    }

    #[test]
    fn the_synopsis_has_the_options_values() {
        let (_, top) = all()
            .into_iter()
            .find(|(name, _)| name == "fanpcap-top")
            .unwrap();
        for option in [
            "[\\fB\\-\\-interval\\fR \\fISECONDS\\fR]",
            "[\\fB\\-\\-filter\\fR \\fITEXT\\fR]",
            "[\\fB\\-\\-once\\fR]",
        ] {
            assert!(top.contains(option), "{option} in:\n{top}");
        }
    }

    #[test]
    fn pages_refer_to_the_others_and_have_their_own_sections() {
        let mut sections = Vec::new();
        for entry in fs::read_dir(SECTIONS).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap();
            if let Some(page) = file
                .strip_suffix(".in")
                .filter(|it| it.starts_with("fanpcap"))
            {
                sections.push((page.to_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
        // The page of the language is not in section 1.
        sections.retain(|(page, _)| page != "fanpcap-lang.7");
        let all = all();
        for (name, text) in &all {
            let own = format!(".BR {} (1)", name.replace('-', "\\-"));
            assert!(!text.contains(&own), "{name} refers to itself");
            assert!(text.ends_with(".BR pcap_fanout (3PCAP)\n"), "{name}");
            for (page, section) in &sections {
                assert_eq!(text.contains(section), page == name, "{page} in {name}");
            }
        }
        for (page, _) in &sections {
            assert!(all.iter().any(|(name, _)| name == page), "no page {page}");
        }
    }
}
