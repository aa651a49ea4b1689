"""The paper's settings for each data set, as files that say where every value comes from."""

from gsparc.recipes.recipe import Recipe, Setting, list_recipes, load_recipe

__all__ = ["Recipe", "Setting", "list_recipes", "load_recipe"]
