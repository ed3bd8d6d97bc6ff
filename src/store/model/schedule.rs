//! Schedules, as every store must keep them.

use super::tables::Tables;
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::store::change::follows;
use crate::store::{Refusal, Schedule};

impl Tables {
    pub(super) fn check_schedule(&self, schedule: &Schedule) -> Result<(), Refusal> {
        follows(self.schedules.get(&key(schedule)).map(|stored| stored.revision), schedule.revision)
    }

    pub(super) fn write_schedule(&mut self, schedule: &Schedule) {
        self.schedules.insert(key(schedule), schedule.clone());
    }

    pub(super) fn has_schedule(&self, schedule: &Schedule) -> bool {
        self.schedules.get(&key(schedule)) == Some(schedule)
    }

    pub(super) fn schedule_find(&self, tenant: &Tenant, name: &str) -> Option<Schedule> {
        self.schedules.get(&(tenant.clone(), name.to_owned())).cloned()
    }

    pub(super) fn schedule_list(&self, tenant: &Tenant, after: &str, limit: u32) -> Vec<Schedule> {
        let later = |schedule: &&Schedule| schedule.tenant == *tenant && schedule.name.as_str() > after;
        self.schedules.values().filter(later).take(limit as usize).cloned().collect()
    }

    pub(super) fn schedule_due(
        &self,
        until: Timestamp,
        after: Option<&Schedule>,
        limit: u32,
    ) -> Vec<Schedule> {
        let place = |schedule: &Schedule| Some((schedule.next_at?, key(schedule)));
        let last = after.and_then(place);
        let is_due =
            |schedule: &&Schedule| schedule.next_at.is_some_and(|at| at <= until) && place(schedule) > last;
        let mut due: Vec<_> = self.schedules.values().filter(is_due).cloned().collect();
        due.sort_by_key(|schedule| schedule.next_at); // stable sort: by tenant and name at one instant
        due.truncate(limit as usize);
        due
    }
}

fn key(schedule: &Schedule) -> (Tenant, String) {
    (schedule.tenant.clone(), schedule.name.as_str().to_owned())
}
