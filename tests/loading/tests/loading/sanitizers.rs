//! Sanitizers find no error in an application whose threads capture, each with its own handles.

use anyhow::{Result, ensure};
use fanpcap_loading::{compile, on_ours, run, skip};
use fanpcap_testkit::{Scratch, Veth, netns};

/// The output of `c/fourfold.c` if each thread reads all packets, and if the threads share them.
const ALL: &str = "1600 packets\n1600 packets\n1600 packets\n1600 packets\n";
const SHARED: &str = "400 packets\n400 packets\n400 packets\n400 packets\n";

/// A sanitizer: its name in the compiler's options, and the variable and value that set its
/// options.
type Sanitizer = (&'static str, &'static str, &'static str);

const THREAD: Sanitizer = ("thread", "TSAN_OPTIONS", "exitcode=66");
// Do not report leaks: the system's library keeps memory, which is no leak of ours.
const ADDRESS: Sanitizer = ("address", "ASAN_OPTIONS", "detect_leaks=0");
const UNDEFINED: Sanitizer = ("undefined", "UBSAN_OPTIONS", "halt_on_error=1");

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn four_threads_under_the_thread_sanitizer() -> Result<()> {
    ensure_clean(THREAD)
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn four_threads_under_the_address_sanitizer() -> Result<()> {
    ensure_clean(ADDRESS)
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn four_threads_under_the_undefined_behaviour_sanitizer() -> Result<()> {
    ensure_clean(UNDEFINED)
}

fn ensure_clean((which, variable, options): Sanitizer) -> Result<()> {
    let scratch = Scratch::new()?;
    let flags = [format!("-fsanitize={which}"), "-pthread".to_owned()];
    let Ok(program) = compile(
        &scratch,
        "fourfold.c",
        &flags.each_ref().map(String::as_str),
    ) else {
        // Compile once without the sanitizer. So an error in the source is not mistaken for a
        // missing sanitizer.
        compile(&scratch, "fourfold.c", &["-pthread"])?;
        skip(&format!("the compiler has no {which} sanitizer"));
        return Ok(());
    };
    netns::within_new(|| {
        Veth::new("va", "vb", 1)?;
        for (setting, value, said) in [
            ("PCAP_DRIVER", "tpacket", ALL),
            ("PCAP_GROUP_vb", "7", SHARED),
        ] {
            // With the address space randomization of some kernels, the sanitizers' shadow memory
            // collides with other mappings.
            let mut command = on_ours("setarch")?;
            command.arg("-R").arg(&program).args(["vb", "va"]);
            command.env(variable, options).env(setting, value);
            let ended = run(&scratch, &mut command)?;
            let is_clean = ended.status.success() && ended.err.is_empty() && ended.out == said;
            ensure!(is_clean, "{setting}={value}: {ended:?}");
        }
        Ok(())
    })
}
