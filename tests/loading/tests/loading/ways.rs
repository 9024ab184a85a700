//! Ways to load our library: by path, preloaded, at run time, from Python, and into a
//! position-dependent executable.

use anyhow::{Context, Result, ensure};
use fanpcap_loading::{
    LIBRARY, compile, library_dir, on_ours, on_system, run, savefile, skip, system_library,
};
use fanpcap_testkit::Scratch;

/// The suffix that our library appends to the system's string in pcap_lib_version().
pub(crate) const MARK: &str = concat!(" + fanpcap ", env!("CARGO_PKG_VERSION"));

#[test]
fn the_version_is_the_systems_and_ours() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "version.c", &[])?;
    let system = run(&scratch, &mut on_system(&program))?.success()?;
    let ours = run(&scratch, &mut on_ours(&program)?)?.success()?;
    assert_eq!(ours.trim_end(), format!("{}{MARK}", system.trim_end()));
    Ok(())
}

#[test]
fn by_library_path_all_is_as_on_the_system() -> Result<()> {
    compare(&[], |program, _| on_ours(program))
}

#[test]
fn preloaded_all_is_as_on_the_system() -> Result<()> {
    compare(&[], |program, _| {
        let mut command = on_system(program);
        command.env("LD_PRELOAD", library_dir()?.join(LIBRARY));
        Ok(command)
    })
}

#[test]
fn bound_at_start_all_is_as_on_the_system() -> Result<()> {
    compare(&["-Wl,-z,now"], |program, _| {
        let mut command = on_ours(program)?;
        command.env("LD_BIND_NOW", "1");
        Ok(command)
    })
}

#[test]
fn position_dependent_programs_all_is_as_on_the_system() -> Result<()> {
    compare(&["-no-pie"], |program, _| on_ours(program))
}

/// Runs the probe on the system's library, and on our library in the way that `how` sets up. Checks
/// that the output is the same, and that the version is ours.
pub(crate) fn compare(
    flags: &[&str],
    how: impl Fn(&std::path::Path, &Scratch) -> Result<std::process::Command>,
) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "probe.c", flags)?;
    let file = savefile(&scratch)?;
    let system = run(&scratch, on_system(&program).arg(&file))?;
    let ours = run(&scratch, how(&program, &scratch)?.arg(&file))?;
    ensure!(
        ours.err.trim_end().ends_with(MARK),
        "it ran on {}, {:?}",
        ours.err,
        ours.status
    );
    ensure!(
        !system.err.contains("fanpcap"),
        "the system's is {}",
        system.err
    );
    let (ours, system) = (ours.success()?, system.success()?);
    ensure!(ours.contains("threads: 0"), "threads were started:\n{ours}");
    assert_eq!(ours, system);
    Ok(())
}

#[test]
fn a_copied_data_symbol_is_the_systems() -> Result<()> {
    for flags in [&["-no-pie", "-fno-pie"][..], &["-pie", "-fPIE"]] {
        let scratch = Scratch::new()?;
        let program = compile(&scratch, "data.c", flags)?;
        let system = run(&scratch, &mut on_system(&program))?.success()?;
        let ours = run(&scratch, &mut on_ours(&program)?)?.success()?;
        // pcap_version is a constant that names the libpcap release whose interface our library
        // has. It must be as long as the system's, because a position-dependent program copies it.
        let (own, rest) = ours.split_once(' ').context("two words")?;
        let (theirs, system) = system.split_once(' ').context("two words")?;
        ensure!(
            own.starts_with("1.10.") && own.len() == theirs.len(),
            "{own}, {theirs}"
        );
        assert_eq!(rest.replace(MARK, ""), system, "with {flags:?}");
        ensure!(ours.contains(MARK), "it ran on {ours}");
    }
    Ok(())
}

#[test]
fn opened_at_run_time_by_path_and_by_name() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "dlopens.c", &["-Wl,--as-needed"])?;
    let file = savefile(&scratch)?;
    let path = library_dir()?.join(LIBRARY);
    let by_path = run(&scratch, on_system(&program).arg(path).arg(&file))?.success()?;
    assert_eq!(by_path.matches(MARK).count(), 2, "{by_path}");
    for name in [LIBRARY, "libpcap.so.1", "libpcap.so"] {
        let by_name = run(&scratch, on_ours(&program)?.arg(name).arg(&file))?.success()?;
        assert_eq!(by_name, by_path, "{name}");
    }
    Ok(())
}

#[test]
fn the_systems_beside_ours_stays_itself() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "dlopens.c", &["-Wl,--as-needed"])?;
    let mut command = on_system(&program);
    command.env("LD_PRELOAD", library_dir()?.join(LIBRARY));
    command.arg(system_library()?).arg(savefile(&scratch)?);
    let out = run(&scratch, &mut command)?.success()?;
    ensure!(out.lines().count() == 2, "{out}");
    Ok(())
}

const PYTHON: &str = r"
import ctypes, sys
pcap = ctypes.CDLL(sys.argv[1])
pcap.pcap_lib_version.restype = ctypes.c_char_p
pcap.pcap_open_offline.restype = ctypes.c_void_p
pcap.pcap_close.argtypes = [ctypes.c_void_p]
pcap.pcap_datalink.argtypes = [ctypes.c_void_p]
errbuf = ctypes.create_string_buffer(256)
handle = pcap.pcap_open_offline(sys.argv[2].encode(), errbuf)
print(pcap.pcap_lib_version().decode(), pcap.pcap_datalink(handle))
pcap.pcap_close(handle)
";

#[test]
fn from_python() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = savefile(&scratch)?;
    for name in [LIBRARY, "libpcap.so"] {
        let mut command = on_ours("python3")?;
        command.args(["-c", PYTHON, name]).arg(&file);
        let Ok(ended) = run(&scratch, &mut command) else {
            skip("no python3 here");
            return Ok(());
        };
        let out = ended.success()?;
        ensure!(
            out.trim_end().ends_with(&format!("{MARK} 1")),
            "{name}: {out}"
        );
    }
    Ok(())
}

#[test]
fn nothing_is_printed() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "silent.c", &[])?;
    let ended = run(&scratch, on_ours(&program)?.arg(savefile(&scratch)?))?;
    assert_eq!(
        (ended.status.code(), &*ended.out, &*ended.err),
        (Some(0), "", "")
    );
    Ok(())
}
