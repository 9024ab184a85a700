//! Compares the back ends on programs as users write them: the modes, and the example of each
//! function in the language's table, under each of the function's names.

use std::path::Path;

use fanpcap_pcap::Library;
use fanpcap_steer::ebpf::EbpfError;
use fanpcap_steer::ir::Tree;
use fanpcap_steer::parts::Parts;
use fanpcap_steer::table::{self, Engines, Entry};
use fanpcap_steer::{ForEngine, GroupOptions, modes, tree};

use super::case::Case;
use super::group::Group;
use super::side::{HOOKS, Hook};
use super::traffic::{Shot, drawn};
use super::workers::all_agree;

/// Number of packets for each program.
const PACKETS: usize = 4000;

/// Compiles a program. The system's libpcap compiles the program's pcap filters.
pub(crate) fn compiled(source: &str) -> Tree {
    let library = Library::open(Path::new("libpcap.so.0.8")).unwrap();
    let pcap = |text: &str| {
        let code = library.compile(text, 65_535);
        code.map_err(|error| error.reason)
    };
    tree(source, &pcap).unwrap_or_else(|error| panic!("{}", error.render(source)))
}

/// The entry's example, once for each of the entry's names. If the example has no steering
/// function, adds one.
pub(crate) fn examples(entry: &Entry) -> Vec<String> {
    let named = entry.names().map(|name| {
        let words = entry.example.split_inclusive(|c: char| !is_of_name(c));
        let renamed = words.map(|word| match word.strip_prefix(entry.name) {
            Some(rest) if !rest.starts_with(is_of_name) => format!("{name}{rest}"),
            _ => word.to_owned(),
        });
        renamed.collect::<String>()
    });
    let steered = named.map(|source| match Parts::of(&compiled(&source)) {
        Err(unfit) if unfit.what.starts_with("packets that no steering") => {
            format!("({}) >-> steer_flow", source.trim_start_matches("main = "))
        }
        _ => source,
    });
    steered.collect()
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '\''
}

pub(crate) fn case(source: &str, shots: &[Shot]) -> Case {
    Case {
        program: compiled(source),
        source: source.to_owned(),
        shots: shots.to_vec(),
        hooks: &HOOKS,
        group: Group(0),
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn each_function_of_the_table_agrees() {
    let shots = drawn(1 << 30, PACKETS).shots;
    let sources: Vec<(bool, String)> = table::entries()
        .flat_map(|entry| {
            let all = entry.engines == Engines::All;
            examples(entry).into_iter().map(move |source| (all, source))
        })
        .collect();
    let mut one_way = Vec::new();
    for (in_groups, source) in &sources {
        let outcome = all_agree(1, |_| case(source, &shots));
        assert_eq!(
            [outcome.programs[0], outcome.programs[2]],
            [u64::from(*in_groups), 1],
            "{source}"
        );
        assert!(outcome.trials[2] > 3000, "{source}: {outcome:?}");
        let is_one_way = outcome.drops[2] == 0 || outcome.drops[2] == outcome.trials[2];
        if is_one_way && outcome.counting + outcome.copied == 0 {
            one_way.push(source.as_str());
        }
    }
    println!(
        "{} functions and names, {PACKETS} packets each",
        sources.len()
    );
    println!("examples that drop all packets or none, and count nothing: {one_way:#?}");
}

#[test]
fn what_is_of_other_engines_is_refused() {
    let others = table::entries().filter(|entry| entry.engines != Engines::All);
    let mut count = 0;
    for source in others.flat_map(examples) {
        let program = compiled(&source);
        for hook in [Hook::Fanout, Hook::Filter] {
            let refused = hook.object(&program);
            let Err(EbpfError::Unfit(unfit)) = refused else {
                panic!("{hook:?}: {source}");
            };
            let is_advised = unfit.what.ends_with("set PCAP_DRIVER=xdp");
            assert!(is_advised, "{source}: {unfit}");
        }
        let on_xdp = ForEngine::of(program, GroupOptions::default());
        assert!(on_xdp.and_then(|it| it.decision()).is_ok(), "{source}");
        count += 1;
    }
    assert!(count > 5);
}

#[test]
#[ignore = "needs root: eBPF"]
fn each_mode_agrees() {
    let shots = drawn(1 << 31, 4 * PACKETS).shots;
    let count = modes::MODES.len() as u64;
    let source = |number: u64| modes::MODES[usize::try_from(number).unwrap()].1;
    let outcome = all_agree(count, |number| case(source(number), &shots));
    println!("{outcome:#?}");
    assert_eq!(outcome.programs, [count, 0, count], "no mode drops");
    assert!(outcome.late > 100);
}
