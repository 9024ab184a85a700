//! Wrong settings, and settings without effect. Groups that can't be joined, and a library that no
//! application loads.

use anyhow::{Result, ensure};
use fanpcap_testkit::Program;

use crate::asked::{Shell, within};

#[test]
#[ignore = "needs root: a namespace"]
fn an_error_of_the_config_file_is_found_with_its_place_and_taken_out() -> Result<()> {
    within(|scratch| {
        let file = scratch.write("pcap.conf", "group = 5\nfanout = hsah\n")?;
        let file = file.display().to_string();
        let shell = Shell::new("fdr1")?.set("PCAP_CONFIG", &file);
        let found = shell.mend("settings")?;
        assert_eq!(found.effect, "refuses");
        assert_eq!(found.place, format!("{file}:2:10"));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn a_variable_that_is_wrong_or_in_vain_is_found_and_unset() -> Result<()> {
    within(|_| {
        let shell = Shell::new("fdr1")?.set("PCAP_GROUP", "seven");
        assert_eq!(shell.mend("settings")?.fix, "unset PCAP_GROUP");
        let shell = Shell::new("fdr1")?.set("PCAP_GROUP_fdrr1", "7");
        let found = shell.mend("set-in-vain")?;
        assert_eq!(
            (found.effect.as_str(), found.fix.as_str()),
            (
                "distorts",
                "export PCAP_GROUP_fdr1=\"$PCAP_GROUP_fdrr1\"; unset PCAP_GROUP_fdrr1"
            )
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn a_line_for_a_misspelt_device_is_found_with_its_consequence_and_corrected() -> Result<()> {
    within(|scratch| {
        let file = scratch.write("pcap.conf", "group = 5\nring@fdrr1 = 2M\n")?;
        let text = file.display().to_string();
        let shell = Shell::new("fdr1")?.set("PCAP_CONFIG", &text);
        let found = shell.mend("set-in-vain")?;
        assert_eq!(
            (found.effect.as_str(), found.place),
            ("costs", format!("{text}:2"))
        );
        let fix = format!("sed -i '2s/ring@fdrr1/ring@fdr1/' {text}");
        assert_eq!(found.fix, fix);
        let mended = std::fs::read_to_string(&file)?;
        assert_eq!(mended, "group = 5\nring@fdr1 = 2M\n");
        // A device with another number may be absent, so the setting may also be right.
        scratch.write("pcap.conf", "group = 5\nring@fdr7 = 2M\n")?;
        let fix = shell.mend("set-in-vain")?.fix;
        ensure!(fix.contains("    # or, if ring@fdr0 is meant: "), "{fix}");
        let mended = std::fs::read_to_string(&file)?;
        assert_eq!(mended, "group = 5\n# ring@fdr7 = 2M\n");
        scratch.write("pcap.conf", "group = 5\nring@wlan7 = 2M\n")?;
        let (_, said) = shell.run("fanpcap doctor fdr1")?;
        let choices = "; the devices here are: fdr0, fdr1, lo  [set-in-vain]\n";
        ensure!(said.contains(choices), "{said}");
        shell.mend("set-in-vain")?;
        let mended = std::fs::read_to_string(&file)?;
        assert_eq!(mended, "group = 5\n# ring@wlan7 = 2M\n");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn the_library_of_a_program_and_the_use_of_a_device_are_told() -> Result<()> {
    within(|_| {
        let shell = Shell::new("")?;
        let (_, said) = shell.run("fanpcap doctor --program tcpdump")?;
        let ours =
            |line: &str| line.contains("/tcpdump would load /") && line.ends_with(", fanpcap's.");
        ensure!(said.lines().any(ours), "{said}");
        let others = shell.set("LD_LIBRARY_PATH", "");
        let (_, said) = others.run("fanpcap doctor --program tcpdump")?;
        ensure!(said.contains(", not fanpcap's.\n"), "{said}");
        // A veth merges segments, and a plan of `fanpcap tune` changes this.
        let advice = "No group uses fdr1. With a group: 'fanpcap tune fdr1' would change ";
        let (_, said) = others.run("fanpcap doctor fdr1")?;
        ensure!(said.contains(advice), "{said}");
        let (_, said) = others.set("PCAP_GROUP", "7").run("fanpcap doctor fdr1")?;
        ensure!(!said.contains("No group uses"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_group_on_another_device_is_found_and_another_taken() -> Result<()> {
    within(|scratch| {
        let file = scratch.file("a.pcap");
        let _member = Program::tcpdump("fdr0", file)?
            .group(7, "hash")
            .start(scratch)?;
        let shell = Shell::new("fdr1")?.set("PCAP_GROUP", "7");
        let found = shell.mend("group-elsewhere")?;
        assert_eq!(
            (found.effect.as_str(), found.place.as_str()),
            ("refuses", "fdr1")
        );
        // The library's error must name the same device.
        let (_, said) = shell.run("tcpdump -c 1 -i fdr1 2>&1")?;
        ensure!(said.contains("fdr0"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn another_mode_than_the_groups_is_found_and_the_groups_taken() -> Result<()> {
    within(|scratch| {
        for (has, asked) in [("lb", "hash"), ("flow", "lb")] {
            let file = scratch.file("a.pcap");
            let member = Program::tcpdump("fdr1", file)?
                .group(7, has)
                .start(scratch)?;
            let shell = Shell::new("fdr1")?
                .set("PCAP_GROUP", "7")
                .set("PCAP_FANOUT", asked);
            let found = shell.mend("group-mode")?;
            assert_eq!(found.fix, format!("export PCAP_FANOUT_fdr1={has}"));
            member.stop()?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn a_library_that_is_not_loaded_is_found_and_enabled() -> Result<()> {
    within(|_| {
        let shell = Shell::new("fdr1")?
            .set("PCAP_GROUP", "7")
            .set("LD_LIBRARY_PATH", "");
        let found = shell.mend("library-not-loaded")?;
        assert_eq!(found.effect, "distorts");
        let without = Shell::new("fdr1")?.set("LD_LIBRARY_PATH", "");
        assert!(
            without.find("", "library-not-loaded")?.is_none(),
            "nothing is set"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: mounts"]
fn pages_without_a_place_in_memory_get_one() -> Result<()> {
    within(|scratch| {
        let mut shell = Shell::new("fdr1")?;
        let on_disk = scratch.file("disk");
        std::fs::create_dir(&on_disk)?;
        let on_disk = on_disk.display();
        shell.before = format!("mount --bind {on_disk} /run && mount --bind {on_disk} /dev/shm");
        if shell.find("", "no-pages")?.is_none() {
            // The temporary directory is in memory on this machine, so `on_disk` is not on a disk.
            return Ok(());
        }
        shell.mend("no-pages")?;
        Ok(())
    })
}
