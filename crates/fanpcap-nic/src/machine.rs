//! The CPUs of a machine, read from sysfs.

use fanpcap_linux::process::cpu;
use std::fs;
use std::path::Path;

/// A CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub number: usize,
    /// The lowest number among the hardware threads of the CPU's core.
    pub core: usize,
    /// The CPU's NUMA node.
    pub node: usize,
    /// Whether the kernel keeps the scheduler and interrupts off this CPU (`isolcpus`).
    pub is_isolated: bool,
}

/// The CPUs that are online.
pub fn cpus() -> Vec<Cpu> {
    let base = Path::new("/sys/devices/system");
    let read = |path: &str| {
        let text = fs::read_to_string(base.join(path)).unwrap_or_default();
        cpu::list(text.trim()).unwrap_or_default()
    };
    let isolated = read("cpu/isolated");
    let nodes: Vec<(usize, Vec<usize>)> = (read("node/online").into_iter())
        .map(|node| (node, read(&format!("node/node{node}/cpulist"))))
        .collect();
    let node = |number: usize| {
        let mut nodes = nodes.iter();
        nodes.find_map(|(node, cpus)| cpus.contains(&number).then_some(*node))
    };
    let core = |number: usize| {
        let siblings = read(&format!("cpu/cpu{number}/topology/thread_siblings_list"));
        siblings.into_iter().min().unwrap_or(number)
    };
    let cpu = |number: usize| Cpu {
        number,
        core: core(number),
        node: node(number).unwrap_or(0),
        is_isolated: isolated.contains(&number),
    };
    read("cpu/online").into_iter().map(cpu).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_has_the_cpus_that_this_process_may_run_on() {
        let all = super::cpus();
        for number in fanpcap_linux::process::cpu::cpus().unwrap() {
            let own = all.iter().find(|cpu| cpu.number == number).unwrap();
            assert!(own.core <= number);
        }
    }
}
