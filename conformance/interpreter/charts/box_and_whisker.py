import matplotlib.pyplot as plt

plt.boxplot([[1, 2, 3, 4, 5, 20], [2, 4, 6, 8, 10]], tick_labels=["A", "B"], patch_artist=True)
plt.title("Boxes")
plt.ylabel("Marks")
plt.show()
