//! Postrider's history checker: what happened, judged against INV-1 to INV-8.
