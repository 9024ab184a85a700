//! Prints what a command waits for, if the cluster's engine does not reply soon.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use fanpcap_terminal::streams;

use crate::conf::{Conf, Engine};

/// How long a command waits before it prints what it waits for.
const SILENT: Duration = Duration::from_secs(1);

/// Prints a line on standard error after [`SILENT`], unless this value was dropped before.
pub(super) struct WaitingNotice {
    _waits: Sender<()>,
}

impl WaitingNotice {
    /// The notice for a cluster: it names the engine that must reply. With engine `fixed` there is
    /// no notice, because no process must reply.
    pub(super) fn of(conf: &Conf) -> Self {
        let (wait, dropped) = mpsc::channel();
        if let Some(text) = text(conf) {
            thread::spawn(move || {
                if dropped.recv_timeout(SILENT) == Err(RecvTimeoutError::Timeout) {
                    streams::note(&text);
                }
            });
        }
        Self { _waits: wait }
    }
}

fn text(conf: &Conf) -> Option<String> {
    let (cluster, place) = (&conf.cluster, conf.engine.place());
    let is_asked = !matches!(conf.engine, Engine::Fixed(_));
    is_asked.then(|| {
        format!(
            "fanpcap: cluster {cluster}: no answer yet from {place}; this takes at most ten \
             seconds\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_must_reply_is_named() {
        let of = |more: &str| text(&Conf::parse(&format!("cluster = a\n{more}"), "c").unwrap());
        let embedded = of("key_file = /k\ncoordinators = 10.0.0.1:5, 10.0.0.2:5").unwrap();
        assert!(
            embedded.contains(
                "cluster a: no answer yet from the active coordinator: 10.0.0.1:5, 10.0.0.2:5;"
            ),
            "{embedded}"
        );
        let etcd = of("engine = etcd\netcd = http://127.0.0.1:1").unwrap();
        assert!(
            etcd.contains("cluster a: no answer yet from etcd at http://127.0.0.1:1;"),
            "{etcd}"
        );
        assert_eq!(of("engine = fixed\nnodes = a1"), None);
    }
}
