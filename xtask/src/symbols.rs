//! Compares the dynamic symbols and the dynamic section of the staged library with the system's
//! libpcap.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shared_object::{SharedObject, Symbol};
use crate::tally::Tally;
use crate::{extension, stage, tree};

/// Maximum size of the library in bytes: every application that captures loads it.
const SIZE_MOST: u64 = 1_965_000;

pub(crate) fn run() -> Result<Tally> {
    let path = tree::staged()?.join("lib").join(stage::LIBRARY);
    let ours = SharedObject::read(&path)?;
    let system = system_library()?;
    let mut tally = Tally::default();
    tally.check("libc and libgcc_s are all it needs", &needs_little(&ours));
    tally.check("SONAME", &soname(&ours));
    tally.check("NODELETE", &stays_loaded(&ours));
    tally.check("no TEXTREL", &no_text_relocation(&ours));
    tally.check("size", &small(&path));
    tally.check("no faults for tests", &faultless(&path));
    tally.check("no symbol versions", &unversioned(&ours));
    tally.check(
        "additions are the header's",
        &additions(&ours, system.as_ref()),
    );
    tally.check("calls of its own stay within", &self_contained(&ours));
    tally.check("names of libpcap 1.11", &newer(&ours));
    compare(&mut tally, &ours, system);
    Ok(tally)
}

/// Runs the comparisons that need the system's own library.
fn compare(tally: &mut Tally, ours: &SharedObject, system: Option<(PathBuf, Symbols)>) {
    let Some((path, system)) = system else {
        return tally.skip(
            "symbols against the system's",
            "no libpcap.so.0.8 or libpcap.so.1 installed",
        );
    };
    println!("  comparing with {}", path.display());
    let (functions, data): (Symbols, Symbols) = system
        .into_iter()
        .partition(|(_, symbol)| symbol.kind != "OBJECT");
    tally.check("functions", &same(&functions, ours, same_function));
    tally.check("data", &same(&data, ours, same_data));
}

/// Checks that our library exports the names of a newer libpcap. On a machine with the newer
/// libpcap, applications that were linked with it may load our library.
fn newer(ours: &SharedObject) -> Result<String> {
    let names = include_str!("symbols/libpcap-1.11.txt").lines();
    let names: Vec<&str> = names.filter(|name| !name.starts_with('#')).collect();
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| !ours.exports.contains_key(**name))
        .collect();
    ensure!(missing.is_empty(), "not exported: {missing:?}");
    Ok(format!("all {} are exported", names.len()))
}

/// Checks that if one of our entry points calls another, the loader can't bind the call to another
/// libpcap.
fn self_contained(ours: &SharedObject) -> Result<String> {
    let (references, exports) = (&ours.references, &ours.exports);
    ensure!(!references.is_empty(), "readelf shows no relocation");
    let outward = references.iter().find(|name| exports.contains_key(*name));
    ensure!(
        outward.is_none(),
        "{outward:?} goes through a slot that the loader may bind to another library"
    );
    Ok(format!(
        "{} references, all to other libraries",
        references.len()
    ))
}

type Symbols = BTreeMap<String, Symbol>;

fn same_function(theirs: &Symbol, ours: &Symbol) -> bool {
    (&theirs.kind, &theirs.binding) == (&ours.kind, &ours.binding)
}

/// Compares data by size, because an executable that isn't position-independent copies data by
/// size.
fn same_data(theirs: &Symbol, ours: &Symbol) -> bool {
    same_function(theirs, ours) && theirs.size == ours.size
}

fn same(
    theirs: &Symbols,
    ours: &SharedObject,
    alike: fn(&Symbol, &Symbol) -> bool,
) -> Result<String> {
    let ours = &ours.exports;
    let differ: Vec<String> = theirs
        .iter()
        .filter_map(|(name, symbol)| match ours.get(name) {
            None => Some(format!("{name} is missing")),
            Some(own) if !alike(symbol, own) => Some(format!(
                "{name} is {} {} {}, not {} {} {}",
                own.binding, own.kind, own.size, symbol.binding, symbol.kind, symbol.size
            )),
            Some(_) => None,
        })
        .collect();
    ensure!(
        differ.is_empty(),
        "{} differ: {}",
        differ.len(),
        differ.join("; ")
    );
    Ok(format!("{} compared, no difference", theirs.len()))
}

/// Checks that pcap/fanout.h declares each export that the system's library lacks, and that each
/// declared function is exported.
fn additions(ours: &SharedObject, system: Option<&(PathBuf, Symbols)>) -> Result<String> {
    let exports = &ours.exports;
    let declared = extension::functions()?;
    let absent: Vec<&String> = declared
        .iter()
        .filter(|name| !exports.contains_key(*name))
        .collect();
    ensure!(absent.is_empty(), "declared but not exported: {absent:?}");
    let Some((_, known)) = system else {
        return Ok(format!(
            "all {} declared functions are exported",
            declared.len()
        ));
    };
    let extra: Vec<&String> = exports
        .keys()
        .filter(|name| !known.contains_key(*name) && !declared.contains(*name))
        .collect();
    ensure!(extra.is_empty(), "exported but not declared: {extra:?}");
    Ok(format!("{} of {}", declared.len(), exports.len()))
}

fn unversioned(ours: &SharedObject) -> Result<String> {
    let mut exports = ours.exports.iter();
    if let Some((name, symbol)) = exports.find(|(_, symbol)| symbol.version.is_some()) {
        bail!("{name} has the version {:?}", symbol.version);
    }
    Ok(format!("{} symbols", ours.exports.len()))
}

fn values<'a>(ours: &'a SharedObject, tag: &str) -> Vec<&'a str> {
    let entries = ours.dynamic.iter().filter(|(have, _)| have == tag);
    entries.map(|(_, value)| value.as_str()).collect()
}

fn needs_little(ours: &SharedObject) -> Result<String> {
    let needed = values(ours, "NEEDED");
    let allowed =
        |name: &str| matches!(name, "libc.so.6" | "libgcc_s.so.1") || name.starts_with("ld-linux");
    let odd: Vec<&&str> = needed.iter().filter(|name| !allowed(name)).collect();
    ensure!(odd.is_empty(), "also needs {odd:?}");
    Ok(needed.join(" "))
}

fn soname(ours: &SharedObject) -> Result<String> {
    let names = values(ours, "SONAME");
    ensure!(
        names == [stage::LIBRARY],
        "the SONAME is {names:?}, not {}",
        stage::LIBRARY
    );
    Ok(stage::LIBRARY.to_owned())
}

/// Checks NODELETE: a thread may be inside the library when the application calls dlclose().
fn stays_loaded(ours: &SharedObject) -> Result<String> {
    let flags = values(ours, "FLAGS_1");
    ensure!(
        flags.iter().any(|flag| flag.contains("NODELETE")),
        "the flags are {flags:?}"
    );
    Ok("set".to_owned())
}

fn no_text_relocation(ours: &SharedObject) -> Result<String> {
    let mut entries = ours.dynamic.iter();
    let writes =
        entries.any(|(tag, value)| tag == "TEXTREL" || tag == "FLAGS" && value.contains("TEXTREL"));
    ensure!(!writes, "the loader must relocate the library's code");
    Ok("none".to_owned())
}

/// Checks that the library is not the build for `tests/faults`, which can end the process at each
/// step of a change.
fn faultless(path: &Path) -> Result<String> {
    const VARIABLE: &[u8] = b"FANPCAP_FAULTS";
    let library = fs::read(path).with_context(|| format!("no {}", path.display()))?;
    let mut places = library.windows(VARIABLE.len());
    ensure!(!places.any(|it| it == VARIABLE), "built with faults");
    Ok("none".to_owned())
}

pub(crate) fn small(path: &Path) -> Result<String> {
    let meta = fs::metadata(path).with_context(|| format!("no {}", path.display()))?;
    ensure!(
        meta.len() <= SIZE_MOST,
        "{} bytes; at most {SIZE_MOST}",
        meta.len()
    );
    Ok(format!("{} of at most {SIZE_MOST} bytes", meta.len()))
}

/// Finds the system's library by the loader's cache, which has the directories of every
/// distribution. If a fanpcap is installed for all applications, it comes first in the cache, and
/// is skipped.
fn system_library() -> Result<Option<(PathBuf, Symbols)>> {
    let mut command = Command::new("ldconfig");
    let path = env::var("PATH").unwrap_or_default();
    command
        .arg("-p")
        .env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let cache = tree::output(&mut command)?;
    for path in cached(&cache) {
        let SharedObject { exports, .. } = SharedObject::read(&path)?;
        if !exports.contains_key("pcap_fanout") {
            return Ok(Some((path, exports)));
        }
    }
    Ok(None)
}

/// The libpcaps in a listing of the loader's cache. Its lines are
/// `\tlibpcap.so.0.8 (libc6,x86-64) => /lib/x86_64-linux-gnu/libpcap.so.0.8`.
fn cached(listing: &str) -> Vec<PathBuf> {
    let named = |name: &'static str| {
        let entries = listing
            .lines()
            .filter_map(|line| line.trim_start().split_once(' '));
        entries.filter(move |(found, _)| *found == name)
    };
    let entries = [stage::LIBRARY, stage::LINKS[0]]
        .into_iter()
        .flat_map(named);
    entries
        .filter_map(|(_, rest)| Some(PathBuf::from(rest.rsplit_once("=> ")?.1)))
        .collect()
}
