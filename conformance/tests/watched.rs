//! Runs C programs under a memory checker, with our own reader. The checker must find no invalid
//! access and no leak.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_conformance::{Behaviour, parallel, run};
use fanpcap_loading::skip;
use fanpcap_testkit::Scratch;

/// With the address space randomization of some kernels, the sanitizer's shadow memory collides
/// with other mappings, so the programs run without this randomization.
const PLAIN: &[&str] = &["setarch", "-R"];
const SANITIZER: &[&str] = &["-fsanitize=address"];
const VALGRIND: &[&str] = &[
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
];

/// The shortest program. Its compilation shows whether the compiler has the sanitizer.
const VERSION: &str = "names/version";

/// The sanitizer detects all leaks and invalid accesses of the program itself. valgrind also
/// detects invalid accesses in libraries.
const BY_VALGRIND: [&str; 6] = [
    "contents/vlan_any",
    "filters/queued_half",
    "handles/statistics",
    "reading/breakloop",
    "reading/counts",
    "reading/oneshot",
];

fn sanitized(family: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    if Behaviour::named(VERSION)
        .compile(&scratch, SANITIZER)
        .is_err()
    {
        skip("the compiler has no address sanitizer");
        return Ok(());
    }
    let watch = |behaviour: Behaviour| {
        let program = behaviour.compile(&scratch, SANITIZER)?;
        run::run_watched(&scratch, PLAIN, &program).context(behaviour.name)
    };
    let found = parallel::map(Behaviour::of_family(family)?, 2, &watch);
    let found = found.into_iter().filter_map(Result::err);
    let reports: String = found.map(|report| format!("{report:#}\n")).collect();
    ensure!(reports.is_empty(), "{reports}");
    Ok(())
}

macro_rules! families {
    ($($family:ident)*) => {
        $(#[test]
        #[ignore = "needs root: live handles in network namespaces"]
        fn $family() -> Result<()> {
            sanitized(stringify!($family))
        })*
        const FAMILIES: &[&str] = &[$(stringify!($family)),*];
    };
}

families! { contents devices files filters handles names reading }

#[test]
fn every_family_has_its_test() -> Result<()> {
    for behaviour in Behaviour::all()? {
        ensure!(
            FAMILIES.contains(&behaviour.family()),
            "{} is not in the list of tests",
            behaviour.name
        );
    }
    Ok(())
}

#[test]
#[ignore = "needs root: live handles in network namespaces"]
fn by_valgrind() -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skip("no valgrind here");
        return Ok(());
    }
    let scratch = Scratch::new()?;
    for name in BY_VALGRIND {
        let program = Behaviour::named(name).compile(&scratch, &[])?;
        run::run_watched(&scratch, VALGRIND, &program).context(name)?;
    }
    Ok(())
}
