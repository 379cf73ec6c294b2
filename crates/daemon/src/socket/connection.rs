//! One client: reads its lines, passes events on, and answers.

use std::io;
use std::time::{Duration, Instant};

use api::messages::{Answer, Ask, Request, RequestError, answer_line};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant as Moment, timeout, timeout_at};

use super::lines::Lines;
use super::slots::Slot;
use super::{Ends, News, PATIENCE, Question};
use node_core::metrics::ByRequest;

/// So much is read at a time: an event is smaller.
const CHUNK_BYTES: usize = 4096;

/// A client that was let in.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    lines: Lines,
    /// An event that nobody had room for yet.
    pending: Option<News>,
}

/// What became of a first look at a client.
#[derive(Debug)]
pub(super) enum FirstLook {
    /// It is dealt with.
    Done,
    /// It needs a place.
    More(Connection),
}

/// How a conversation ended that should not have ended so.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("it said nothing for {PATIENCE:?}")]
    Silent,
    #[error("it said nothing and others wanted its place")]
    Crowded,
    #[error("it did not take its answer within {PATIENCE:?}")]
    Deaf,
    #[error(transparent)]
    NoRequest(#[from] RequestError),
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

impl Connection {
    /// Takes what a client has said by now. A plugin says all it has to say at once, so that its
    /// event needs neither a place nor a task.
    pub(super) fn first_look(stream: UnixStream, ends: &Ends) -> FirstLook {
        let mut connection = Self {
            stream,
            lines: Lines::default(),
            pending: None,
        };
        // An error comes again, and is dealt with then.
        let _ = connection.receive_now();
        let first = connection.lines.peek().map(Request::parse);
        let Some(Ok(Request::Event(event))) = first else {
            return FirstLook::More(connection);
        };
        ends.count_event("socket");
        match ends.news.try_send(News::Event(event)) {
            Err(mpsc::error::TrySendError::Full(news)) => {
                connection.pending = Some(news);
                FirstLook::More(connection)
            }
            _ => FirstLook::Done,
        }
    }

    /// Attends to a client until it leaves or is sent away.
    pub(super) async fn attend(mut self, slot: Slot, ends: Ends) {
        match self.converse(&slot, &ends).await {
            Ok(()) => {}
            Err(Trouble::Broken(error)) => {
                tracing::debug!(%error, "a client of the socket has gone");
            }
            Err(trouble) => {
                ends.metrics.refused_clients.inc();
                tracing::debug!(reason = %trouble, "sent a client of the socket away");
            }
        }
    }

    async fn converse(&mut self, slot: &Slot, ends: &Ends) -> Result<(), Trouble> {
        if let Some(news) = self.pending.take() {
            // Fails only if all is about to end.
            let _ = ends.news.send(news).await;
            return Ok(());
        }
        while let Some(line) = self.line(slot).await? {
            let started = Instant::now();
            match Request::parse(&line) {
                Ok(Request::Event(event)) => {
                    ends.count_event("socket");
                    // As above.
                    let _ = ends.news.send(News::Event(event)).await;
                    return Ok(());
                }
                Ok(Request::Ask(ask)) => {
                    let answer = ends.answer(ask).await;
                    let answer = answer.as_ref().map_err(String::as_str);
                    self.write(&answer_line(answer)).await?;
                    ends.observe(ask, started.elapsed());
                }
                Err(error) => {
                    self.write(&answer_line(Err(&error.to_string()))).await?;
                    if matches!(error, RequestError::NoMessage(_)) {
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// The next line; none if the client has left.
    async fn line(&mut self, slot: &Slot) -> Result<Option<Vec<u8>>, Trouble> {
        let deadline = Moment::now() + PATIENCE;
        let silence = slot.silence();
        loop {
            match self.lines.next() {
                Ok(None) => {}
                Ok(line) => return Ok(line),
                Err(error) => {
                    drop(silence);
                    self.write(&answer_line(Err(&error.to_string()))).await?;
                    return Err(error.into());
                }
            }
            let trouble = tokio::select! {
                ready = timeout_at(deadline, self.stream.readable()) => match ready {
                    Ok(ready) => {
                        ready?;
                        match self.receive() {
                            Ok(0) => return Ok(None),
                            Ok(_) => continue,
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                            Err(error) => return Err(error.into()),
                        }
                    }
                    Err(_) => Trouble::Silent,
                },
                () = silence.must_leave() => Trouble::Crowded,
            };
            return self.last_words().ok_or(trouble).map(Some);
        }
    }

    /// What a client said while it was about to be sent away. From now on it is told that nobody
    /// listens, and a plugin then leaves its event in the spool.
    fn last_words(&mut self) -> Option<Vec<u8>> {
        shutdown(&self.stream, Shutdown::Read).ok()?;
        while self.receive_now().is_ok_and(|count| count > 0) {
            match self.lines.next() {
                Ok(None) => {}
                Ok(line) => return line,
                Err(_) => return None,
            }
        }
        None
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut chunk = [0; CHUNK_BYTES];
        let count = self.stream.try_read(&mut chunk)?;
        self.lines.push(&chunk[..count]);
        Ok(count)
    }

    /// As [`Self::receive`], whether or not the runtime knows already that there is something.
    fn receive_now(&mut self) -> Result<usize, Errno> {
        let mut chunk = [0; CHUNK_BYTES];
        let (count, _) = recv(&self.stream, &mut chunk, RecvFlags::DONTWAIT)?;
        self.lines.push(&chunk[..count]);
        Ok(count)
    }

    async fn write(&mut self, line: &[u8]) -> Result<(), Trouble> {
        match timeout(PATIENCE, self.stream.write_all(line)).await {
            Ok(written) => Ok(written?),
            Err(_) => Err(Trouble::Deaf),
        }
    }
}

impl Ends {
    pub(super) fn count_event(&self, way: &str) {
        let by = ByRequest {
            request: way.to_owned(),
        };
        self.metrics.events.get_or_create(&by).inc();
    }

    fn observe(&self, ask: Ask, took: Duration) {
        let by = ByRequest {
            request: ask.to_string(),
        };
        let times = self.metrics.request_duration.get_or_create(&by);
        times.observe(took.as_secs_f64());
    }

    async fn answer(&self, ask: Ask) -> Result<Answer, String> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.questions.send(Question { ask, reply }).await.ok()?;
            answer.await.ok()
        };
        match timeout(PATIENCE, asked).await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err("the daemon is about to end".to_owned()),
            Err(_) => Err(format!("nobody had an answer within {PATIENCE:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream as Peer;
    use std::sync::Arc;

    use api::event::Event;

    use super::super::slots::Slots;
    use super::*;
    use node_core::metrics::Metrics;

    fn block_on(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(work);
    }

    fn ends() -> (Ends, mpsc::Receiver<News>) {
        let (news, receiver) = mpsc::channel(1);
        let ends = Ends {
            news,
            questions: mpsc::channel(1).0,
            metrics: Arc::new(Metrics::new()),
            conditions: Arc::default(),
        };
        (ends, receiver)
    }

    fn pair() -> (UnixStream, Peer) {
        let (ours, theirs) = Peer::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (UnixStream::from_std(ours).unwrap(), theirs)
    }

    fn line() -> Vec<u8> {
        Request::event_line(&Event::default()).unwrap()
    }

    /// A client that says nothing, in the only place that there is, and that is told to leave.
    async fn sent_away(ends: &Ends, before_it_knows: impl FnOnce(&mut Peer)) -> Peer {
        let slots = Slots::new(1);
        let (stream, mut peer) = pair();
        let FirstLook::More(connection) = Connection::first_look(stream, ends) else {
            panic!("there was nothing to look at");
        };
        let slot = slots.take().await;
        let attended = tokio::spawn(connection.attend(slot, ends.clone()));
        tokio::task::yield_now().await;
        before_it_knows(&mut peer);
        let _place = slots.take().await;
        attended.await.unwrap();
        peer
    }

    #[test]
    fn last_words_are_heard() {
        block_on(async {
            let (ends, mut news) = ends();
            sent_away(&ends, |peer| peer.write_all(&line()).unwrap()).await;
            assert!(matches!(news.try_recv(), Ok(News::Event(_))));
        });
    }

    #[test]
    fn who_was_sent_away_is_told_so_when_it_speaks() {
        block_on(async {
            let (ends, mut news) = ends();
            let mut peer = sent_away(&ends, |_| {}).await;
            let error = peer.write_all(&line()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            news.try_recv().unwrap_err();
            assert_eq!(ends.metrics.refused_clients.get(), 1);
        });
    }

    #[test]
    fn an_event_that_is_there_needs_no_place() {
        block_on(async {
            let (ends, mut news) = ends();
            let (stream, mut peer) = pair();
            peer.write_all(&line()).unwrap();
            let look = Connection::first_look(stream, &ends);
            assert!(matches!(look, FirstLook::Done), "{look:?}");
            assert!(matches!(news.try_recv(), Ok(News::Event(_))));
        });
    }

    #[test]
    fn an_event_that_nobody_has_room_for_waits_in_a_place() {
        block_on(async {
            let (slots, (ends, mut news)) = (Slots::new(1), ends());
            ends.news.send(News::Missed).await.unwrap();
            let (stream, mut peer) = pair();
            peer.write_all(&line()).unwrap();
            let FirstLook::More(connection) = Connection::first_look(stream, &ends) else {
                panic!("there was no room");
            };
            tokio::spawn(connection.attend(slots.take().await, ends.clone()));
            assert_eq!(news.recv().await, Some(News::Missed));
            assert!(matches!(news.recv().await, Some(News::Event(_))));
        });
    }
}
