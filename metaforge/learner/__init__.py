"""Use of a trained learner: loaded from a run or a bundle, moved to a task of the user's own."""
