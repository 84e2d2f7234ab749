"""Forces: Actions on single points, without neighbours."""
