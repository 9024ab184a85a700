//! A device for tests, which is up and gets no packets.

use crate::port::{LinkState, Port, PortStatistics, ReadError};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

#[derive(Debug)]
pub(crate) struct Quiet {
    fd: UnixStream,
    is_counted: bool,
}

impl Quiet {
    pub(crate) fn new(is_counted: bool) -> Self {
        let (fd, _) = UnixStream::pair().unwrap();
        Self { fd, is_counted }
    }
}

impl Port for Quiet {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn check(&self, _: i16) -> Result<LinkState, ReadError> {
        Ok(LinkState::Up)
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        Ok(LinkState::Up)
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        match self.is_counted {
            true => Ok(PortStatistics::default()),
            false => Err(ErrorKind::Unsupported.into()),
        }
    }
}
