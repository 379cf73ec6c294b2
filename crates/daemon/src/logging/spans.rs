//! What is going on while an event happens: the spans that are open, and what they carry.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::Event;
use tracing::span::{Attributes, Id, Record};

use super::fields::Fields;

thread_local! {
    /// The spans that this thread is in, the innermost last.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// All spans that are open.
#[derive(Debug, Default)]
pub(super) struct Spans {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    open: HashMap<u64, Span>,
}

#[derive(Debug)]
struct Span {
    fields: Fields,
    parent: Option<u64>,
    /// Those who hold it, and those inside it.
    users: usize,
}

fn innermost() -> Option<u64> {
    ENTERED.with_borrow(|entered| entered.last().copied())
}

impl Spans {
    pub(super) fn open(&self, attributes: &Attributes<'_>) -> Id {
        let parent = match attributes.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if attributes.is_contextual() => innermost(),
            None => None,
        };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut state = self.lock();
        // A span lives as long as one inside it.
        let parent = parent.filter(|parent| state.hold(*parent));
        state.last += 1;
        let id = state.last;
        let span = Span {
            fields,
            parent,
            users: 1,
        };
        state.open.insert(id, span);
        Id::from_u64(id)
    }

    pub(super) fn record(&self, id: &Id, values: &Record<'_>) {
        if let Some(span) = self.lock().open.get_mut(&id.into_u64()) {
            values.record(&mut span.fields);
        }
    }

    pub(super) fn hold(&self, id: &Id) {
        self.lock().hold(id.into_u64());
    }

    /// Gives up one hold; says whether it was the last one.
    pub(super) fn release(&self, id: &Id) -> bool {
        let mut state = self.lock();
        let mut next = Some(id.into_u64());
        let mut is_closed = false;
        while let Some(id) = next.take() {
            let Some(span) = state.open.get_mut(&id) else {
                break;
            };
            span.users -= 1;
            if span.users == 0 {
                is_closed = true;
                next = state.open.remove(&id).and_then(|span| span.parent);
            }
        }
        is_closed
    }

    pub(super) fn enter(id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    pub(super) fn exit(id: &Id) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(at) = entered.iter().rposition(|open| *open == id.into_u64()) {
                entered.remove(at);
            }
        });
    }

    /// An event's own fields and those of the spans around it, the inner ones before the outer.
    pub(super) fn fields_of(&self, event: &Event<'_>) -> Fields {
        let mut around = match event.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if event.is_contextual() => innermost(),
            None => None,
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let state = self.lock();
        while let Some(span) = around.and_then(|id| state.open.get(&id)) {
            fields.inherit(&span.fields);
            around = span.parent;
        }
        fields
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.lock().open.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn hold(&mut self, id: u64) -> bool {
        let span = self.open.get_mut(&id);
        span.map(|span| span.users += 1).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::lines::{Lines, Settings};
    use super::super::queue::Queue;
    use super::super::render::Colours;
    use node_config::Logging;

    #[test]
    fn a_span_is_forgotten_with_the_last_one_inside_it() {
        let settings = Arc::new(Settings::new(Logging::default()));
        let lines = Lines::new(settings, Arc::new(Queue::default()), Colours::None);
        let spans = Arc::clone(&lines.spans);
        tracing::subscriber::with_default(lines, || {
            let outer = tracing::info_span!("outer");
            let inner = outer.in_scope(|| tracing::info_span!("inner"));
            let again = inner.clone();
            drop(outer);
            drop(inner);
            assert_eq!(spans.count(), 2);
            drop(again);
            assert_eq!(spans.count(), 0);
        });
    }
}
