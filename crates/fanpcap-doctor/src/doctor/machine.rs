//! Findings for all devices: the kernel, its clock, its CPUs, and the directory of member pages.

use std::fs;
use std::io;
use std::path::Path;

use fanpcap_engine::root;
use fanpcap_linux::file::trusted::Untrusted;

use super::finding::{Effect, Finding, MACHINE, word};

/// Facts of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// The kernel's present clock source, and the available ones.
    clock: Option<(String, Vec<String>)>,
    /// CPUs whose governor saves power.
    slow_cpus: usize,
    /// `net.core.bpf_jit_enable`; `None` if this network namespace does not show it.
    jit: Option<u32>,
    /// Packets that the CPUs' queues dropped for lack of room between doctor's two readings.
    overrun: u64,
    /// `net.core.netdev_max_backlog`.
    backlog: u64,
    /// Why members have no pages, and the command that fixes it.
    no_pages: Option<(String, String)>,
}

/// Packets dropped since boot for lack of room in the CPUs' queues. These queues hold packets from
/// other CPUs (RPS) and from virtual devices.
pub(super) fn overruns(root: &Path) -> u64 {
    let text = read(root, "proc/net/softnet_stat").unwrap_or_default();
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(dropped).sum()
}

impl Machine {
    /// Reads the files below `root`, which is `/` except in tests. `overruns_before` is
    /// [`overruns`] of doctor's first reading.
    pub(super) fn read(root: &Path, overruns_before: u64) -> Self {
        Self {
            clock: clock(root),
            slow_cpus: slow_cpus(root),
            jit: number(root, "proc/sys/net/core/bpf_jit_enable"),
            overrun: overruns(root).saturating_sub(overruns_before),
            backlog: number(root, "proc/sys/net/core/netdev_max_backlog").unwrap_or(1000),
            no_pages: root::root().err().map(|error| no_pages(&error)),
        }
    }

    /// The problems of the machine.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let all = [
            self.pages(),
            self.overrun(),
            self.clock(),
            self.jit(),
            self.governor(),
        ];
        all.into_iter().flatten().collect()
    }

    fn pages(&self) -> Option<Finding> {
        let (what, fix) = self.no_pages.clone()?;
        let told = [
            what,
            "members have no pages: a group with a steering program can't keep flows in their place \
                  when a member joins or crashes, and the losses of members are unknown".to_owned(),
            fix,
        ];
        Some(Finding::new("no-pages", Effect::Distorts, MACHINE, told))
    }

    fn overrun(&self) -> Option<Finding> {
        let told = [
            format!(
                "the kernel dropped {} packets for lack of room in a CPU's queue while doctor looked",
                self.overrun
            ),
            "they are lost before any capture, and no capture counts them".to_owned(),
            format!(
                "sysctl -w net.core.netdev_max_backlog={}",
                self.backlog.saturating_mul(4).clamp(4000, 1_000_000)
            ),
        ];
        (self.overrun > 0).then(|| Finding::new("backlog", Effect::Loses, MACHINE, told))
    }

    fn clock(&self) -> Option<Finding> {
        let (current, all) = self.clock.as_ref()?;
        let slow = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"];
        if !slow.contains(&current.as_str()) {
            return None;
        }
        let better = [
            "tsc",
            "kvm-clock",
            "hyperv_clocksource_tsc_page",
            "arch_sys_counter",
        ];
        let better = better
            .iter()
            .find(|name| all.iter().any(|it| it == *name))?;
        let told = [
            format!("the kernel's clock is {current}"),
            "the time stamp of each packet costs a microsecond or more; with a clock of the CPU it costs 20 to 30 ns".to_owned(),
            format!("echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ];
        Some(Finding::new("slow-clock", Effect::Costs, MACHINE, told))
    }

    fn jit(&self) -> Option<Finding> {
        let told = [
            "the kernel interprets BPF programs".to_owned(),
            "filters and steering programs need several times as long for each packet".to_owned(),
            "sysctl -w net.core.bpf_jit_enable=1".to_owned(),
        ];
        (self.jit == Some(0)).then(|| Finding::new("no-jit", Effect::Costs, MACHINE, told))
    }

    fn governor(&self) -> Option<Finding> {
        let told = [
            format!("{} CPUs save power (governor powersave)", self.slow_cpus),
            "a CPU that is slow when a burst begins can't empty the rings in time; a fast CPU could"
                .to_owned(),
            "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
                .to_owned(),
        ];
        (self.slow_cpus > 0).then(|| Finding::new("powersave", Effect::Costs, MACHINE, told))
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

fn number<T: std::str::FromStr>(root: &Path, path: &str) -> Option<T> {
    read(root, path)?.trim().parse().ok()
}

fn clock(root: &Path) -> Option<(String, Vec<String>)> {
    let directory = "sys/devices/system/clocksource/clocksource0";
    let current = read(root, &format!("{directory}/current_clocksource"))?;
    let all = read(root, &format!("{directory}/available_clocksource")).unwrap_or_default();
    let all = all.split_whitespace().map(str::to_owned).collect();
    Some((current.trim().to_owned(), all))
}

fn slow_cpus(root: &Path) -> usize {
    let cpus = fs::read_dir(root.join("sys/devices/system/cpu"));
    let governors = cpus
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|cpu| fs::read_to_string(cpu.path().join("cpufreq/scaling_governor")).ok());
    governors.filter(|it| it.trim() == "powersave").count()
}

/// Why members have no pages, and the command that fixes it.
fn no_pages(error: &io::Error) -> (String, String) {
    let foreign = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Untrusted>());
    match foreign {
        Some(foreign) => {
            let path = word(&foreign.path().display().to_string());
            let fix = format!("chown root: {path} && chmod 755 {path}");
            (foreign.to_string(), fix)
        }
        None => (
            format!("neither /run nor /dev/shm is in memory ({error})"),
            "mkdir -p /run/fanpcap && mount -t tmpfs -o mode=755 tmpfs /run/fanpcap".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    fn names(machine: &Machine) -> Vec<&'static str> {
        machine.findings().iter().map(|it| it.name).collect()
    }

    fn write(scratch: &Scratch, path: &str, text: &str) {
        let path = scratch.file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let scratch = Scratch::new().unwrap();
        let clocks = "sys/devices/system/clocksource/clocksource0";
        write(&scratch, &format!("{clocks}/current_clocksource"), "hpet\n");
        write(
            &scratch,
            &format!("{clocks}/available_clocksource"),
            "tsc hpet acpi_pm \n",
        );
        for (cpu, governor) in [(0, "powersave\n"), (1, "performance\n"), (2, "powersave\n")] {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            write(&scratch, &path, governor);
        }
        write(&scratch, "proc/sys/net/core/bpf_jit_enable", "0\n");
        write(&scratch, "proc/sys/net/core/netdev_max_backlog", "1000\n");
        let line = |dropped: u32| format!("00000f00 {dropped:08x} 00000000 00000000\n");
        write(&scratch, "proc/net/softnet_stat", &(line(3) + &line(0x12)));
        let root = scratch.file("");
        assert_eq!(overruns(&root), 21);
        let mut machine = Machine::read(&root, 14);
        machine.no_pages = None;
        assert_eq!(
            names(&machine),
            ["backlog", "slow-clock", "no-jit", "powersave"]
        );
        let findings = machine.findings();
        assert!(findings[0].what.contains(" 7 packets"), "{findings:?}");
        assert_eq!(
            findings[0].fix,
            "sysctl -w net.core.netdev_max_backlog=4000"
        );
        assert!(findings[1].fix.starts_with("echo tsc > "), "{findings:?}");
        assert!(findings[3].what.starts_with("2 CPUs"), "{findings:?}");
    }

    #[test]
    fn nothing_is_said_of_what_is_right_or_not_known() {
        let mut machine = Machine::read(&Scratch::new().unwrap().file(""), 0);
        machine.no_pages = None;
        assert!(machine.findings().is_empty(), "{:?}", machine.findings());
        machine.jit = Some(1);
        machine.clock = Some(("kvm-clock".to_owned(), vec!["tsc".to_owned()]));
        assert!(machine.findings().is_empty());
        // If the kernel has no better clock source, there is no fix, so there is no finding.
        machine.clock = Some(("acpi_pm".to_owned(), vec!["acpi_pm".to_owned()]));
        assert!(machine.findings().is_empty());
    }

    #[test]
    fn pages_without_a_place_in_memory_get_one() {
        let error = io::Error::from_raw_os_error(19);
        let machine = Machine {
            no_pages: Some(no_pages(&error)),
            ..Machine::default()
        };
        assert_eq!(names(&machine), ["no-pages"]);
        assert!(machine.findings()[0].fix.contains("mount -t tmpfs"));
    }
}
