//! A member of every mode tries to join a group of every other mode. The refusal must name both
//! modes.

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::Program;

const TCP: &str = "main = tcp >-> steer_flow";
const ALL: &str = "main = steer_rnd";

const MODES: [&str; 13] = [
    "hash",
    "hash+defrag",
    "hash+rollover",
    "lb",
    "lb+defrag",
    "rnd",
    "cpu",
    "rollover",
    "qm",
    "flow",
    "flow+defrag",
    TCP,
    ALL,
];

/// A mode's name in the kernel, and its options.
fn parts(mode: &str) -> (&str, &str) {
    let (name, options) = mode.split_at(mode.find('+').unwrap_or(mode.len()));
    match name {
        "flow" | TCP | ALL => ("a steering program", options),
        name => (name, options),
    }
}

/// The mode as a message shows it.
fn shown(mode: &str) -> String {
    match mode {
        TCP | ALL => format!("the steering program '{mode}'"),
        mode => mode.to_owned(),
    }
}

/// The message for a newcomer that asks for the mode `asked`, if the pages of the group's members
/// show the mode `runs`.
fn with_pages(runs: &str, asked: &str) -> String {
    let ((kind, options), (asked_kind, asked_options)) = (parts(runs), parts(asked));
    let texts = [runs, asked].map(|mode| mode.strip_suffix(parts(mode).1).unwrap_or(mode));
    if runs == asked {
        return "joined".to_owned();
    }
    if kind == asked_kind && kind == "a steering program" && texts[0] != texts[1] {
        let [runs, asked] = texts;
        return format!("runs the program '{runs}', not '{asked}': bring the same program");
    }
    ensure_differ((kind, options), (asked_kind, asked_options));
    format!(
        "runs {}, not {}: use the group's mode",
        shown(runs),
        shown(asked)
    )
}

fn ensure_differ(one: (&str, &str), other: (&str, &str)) {
    assert_ne!(one, other, "two programs have one name");
}

/// Like [`with_pages`], for a group without pages. Then only the kernel reports the group's mode,
/// and it does not report options.
fn without_pages(runs: &str, asked: &str) -> String {
    let ((kind, options), (asked_kind, asked_options)) = (parts(runs), parts(asked));
    let asked = shown(asked);
    match (kind == asked_kind, options == asked_options) {
        (true, _) if kind == "a steering program" => "none of them can be joined".to_owned(),
        (true, true) => "joined".to_owned(),
        (true, false) => format!("runs {kind} with other options, not {asked}: use the group's"),
        (false, _) => format!("runs {kind}, not {asked}: use the group's mode"),
    }
}

fn ensure_says(first: &str, modes: &[&str], expected: fn(&str, &str) -> String) -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("matrix")?, "")?;
        let ended = program
            .args([DEVICE, first])
            .args(modes)
            .run(&wire.scratch)?;
        ensure!(ended.status.success(), "{}", ended.said);
        let mut wrong = Vec::new();
        let lines = ended.said.lines();
        ensure!(
            lines.clone().count() == modes.len() * modes.len(),
            "{}",
            ended.said
        );
        for line in lines {
            let mut fields = line.split('\t');
            let mut field = || fields.next().with_context(|| line.to_owned());
            let (runs, asked, said) = (field()?, field()?, field()?);
            if !said.contains(&expected(runs, asked)) {
                wrong.push(line);
            }
        }
        ensure!(wrong.is_empty(), "{} of them: {wrong:#?}", wrong.len());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_refusal_names_both_modes() -> Result<()> {
    ensure_says("OWN", &MODES, with_pages)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_refusal_names_both_modes_as_far_as_the_kernel_tells() -> Result<()> {
    // A newcomer to a group with a steering program and without pages is refused only after a
    // second. To save time, the test uses only two of the modes with a steering program.
    ensure_says("RAW", &MODES[..11], without_pages)
}
