//! Rings whose process forks, starts programs, or loses the device, by the stand-in for PF_RING's
//! library.

use super::*;
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::netns::on_pair;
use fanpcap_testkit::pfring::is_again;
use fanpcap_testkit::{Injector, veth};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

const IN_CLUSTER: Options = Options {
    snaplen: 128,
    cluster: Some((7, 1)),
    outgoing: false,
    is_promiscuous: true,
};

#[test]
fn the_end_of_the_demo_mode_is_told() {
    let error = check("pfring_enable_ring", DEMO_ENDED, true).unwrap_err();
    assert!(error.to_string().contains("licence of ntop"), "{error}");
    assert!(!broken(-1).to_string().contains("ntop"));
}

/// Waits until the ring gets a packet. Sends further ones, because the kernel drops packets if too
/// many wait for a CPU.
fn takes_packets(receiver: &mut Receiver) -> bool {
    let injector = Injector::open("va").unwrap();
    let mut found = libc::pollfd {
        fd: receiver.handle().waits_on().unwrap().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    await_so("a packet", || {
        injector.send(&[7; 60]).unwrap();
        // SAFETY: the struct lives through the call.
        let is_ready = unsafe { libc::poll(&raw mut found, 1, 0) } == 1;
        is_ready && receiver.receive().unwrap().is_some()
    });
    true
}

/// A forked child.
struct Child(libc::pid_t);

/// Forks. The child runs `work` and ends.
fn fork(work: impl FnOnce() -> bool) -> Child {
    // SAFETY: the child calls `work` and _exit(2). This process runs only this test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no preconditions.
        unsafe { libc::alarm(240) };
        // A panic would end only this thread, and the child with success.
        let is_done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: no preconditions.
        unsafe { libc::_exit(i32::from(!is_done)) };
    }
    assert!(child > 0, "fork");
    Child(child)
}

impl Child {
    fn wait(self) {
        let mut status = 0;
        // SAFETY: the number lives through the call.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert_eq!(status, 0, "the child's status");
    }
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn a_child_that_closes_its_copy_leaves_the_ring_to_its_parent() {
    let test = "ring::tests::a_child_that_closes_its_copy_leaves_the_ring_to_its_parent";
    if !is_again(test, &[]).unwrap() {
        return;
    }
    on_pair(|_| {
        for cluster in [None, IN_CLUSTER.cluster] {
            let options = Options {
                cluster,
                ..IN_CLUSTER
            };
            let mut receiver = Some(open("vb", &options).unwrap());
            fork(|| receiver.take().is_some()).wait();
            assert!(takes_packets(receiver.as_mut().unwrap()));
            // The device does not exist in a network namespace of the child's own.
            // SAFETY: takes a plain number.
            let apart = || unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            fork(|| apart() && receiver.take().is_some()).wait();
            assert!(takes_packets(receiver.as_mut().unwrap()));
        }
    });
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn a_parent_that_closes_its_copy_leaves_the_ring_to_its_child() {
    let test = "ring::tests::a_parent_that_closes_its_copy_leaves_the_ring_to_its_child";
    if !is_again(test, &[]).unwrap() {
        return;
    }
    on_pair(|_| {
        let mut receiver = open("vb", &IN_CLUSTER).unwrap();
        let (mut childs, mut own) = UnixStream::pair().unwrap();
        let child = fork(|| childs.read_exact(&mut [0]).is_ok() && takes_packets(&mut receiver));
        drop(receiver);
        own.write_all(&[1]).unwrap();
        child.wait();
    });
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn the_ring_of_a_removed_device_leaves_its_cluster() {
    let test = "ring::tests::the_ring_of_a_removed_device_leaves_its_cluster";
    if is_again(test, &[]).unwrap() {
        on_pair(|_| {
            let receiver = open("vb", &IN_CLUSTER).unwrap();
            veth::ip("link delete va").unwrap();
            // The stand-in ends the process if the ring is still in the cluster.
            drop(receiver);
        });
    }
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn a_library_that_closes_no_descriptor_leaves_none() {
    let test = "ring::tests::a_library_that_closes_no_descriptor_leaves_none";
    if is_again(test, &[("STANDIN_KEEPS_DESCRIPTORS", "1")]).unwrap() {
        on_pair(|_| {
            let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let before = count();
            let receiver = open("vb", &IN_CLUSTER).unwrap();
            assert!(count() > before);
            drop(receiver);
            assert_eq!(count(), before);
        });
    }
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn programs_that_the_process_starts_do_not_inherit_the_ring() {
    let test = "ring::tests::programs_that_the_process_starts_do_not_inherit_the_ring";
    if is_again(test, &[]).unwrap() {
        on_pair(|_| {
            let receiver = open("vb", &IN_CLUSTER).unwrap();
            let fd = receiver.handle().waits_on().unwrap().as_raw_fd();
            // SAFETY: fcntl takes plain numbers here.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            assert_eq!(flags, libc::FD_CLOEXEC);
        });
    }
}
